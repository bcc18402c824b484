/*
 * TCP flows for tests in tools/kernel/guest, on one machine with network namespaces:
 *
 *   traffic sink PORT
 *   traffic send ADDRESS PORT CONTROL FLOWS SECONDS WARMUP
 *   traffic capture DEV
 *
 * `send` keeps FLOWS connections full; each starts 0.1 s after the one before. Their congestion control is CONTROL; a
 * list (`cubic,bbr`) has one for each connection, in turn. At the end `send` prints each connection's goodput after
 * WARMUP seconds, in kbit/s: what the receiver has acknowledged. `capture` receives copies of the frames of an
 * interface, as tcpdump does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FLOWS = 64 };

static char block[65536];
static int files[MAX_FLOWS];
static uint64_t begun[MAX_FLOWS];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct sockaddr_in address(const char *ip, int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

    if (!inet_aton(ip, &a.sin_addr))
        die(ip);
    return a;
}

/* Reads from all connections until it is killed. */
static void sink(int port)
{
    struct pollfd polled[MAX_FLOWS] = { { .fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN } };
    struct sockaddr_in a = address("0.0.0.0", port);
    int one = 1, count = 1, i;

    setsockopt(polled[0].fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(polled[0].fd, (void *)&a, sizeof(a)) || listen(polled[0].fd, MAX_FLOWS))
        die("listen");
    for (;;) {
        if (poll(polled, count, -1) < 0)
            die("poll");
        for (i = 1; i < count; i++)
            if (polled[i].revents && read(polled[i].fd, block, sizeof(block)) <= 0) {
                close(polled[i].fd);
                polled[i--] = polled[--count];
            }
        if (polled[0].revents && count < MAX_FLOWS)
            polled[count++] = (struct pollfd){ .fd = accept(polled[0].fd, 0, 0), .events = POLLIN };
    }
}

static uint64_t acknowledged(int file)
{
    struct tcp_info info = { 0 };
    socklen_t size = sizeof(info);

    if (getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &size))
        die("TCP_INFO");
    return info.tcpi_bytes_acked;
}

/* The n-th name of a comma-separated list, counted from 0; after the last one the list repeats. */
static const char *nth(const char *list, int n)
{
    static char name[16];
    const char *at = list;

    while (n--) {
        at = strchr(at, ',');
        at = at ? at + 1 : list;
    }
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
    return name;
}

static void send_all(struct sockaddr_in to, const char *controls, int flows, double seconds, double warmup)
{
    struct pollfd polled[MAX_FLOWS];
    double start = now(), warm = 0;
    int count = 0, i;

    if (flows > MAX_FLOWS)
        die("flows");
    while (now() < start + seconds) {
        if (count < flows && now() >= start + count * 0.1) {
            const char *control = nth(controls, count);
            int file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

            if (setsockopt(file, IPPROTO_TCP, TCP_CONGESTION, control, strlen(control)))
                die(control);
            /* Does not wait: the handshake may be in the queue for seconds, while the other connections send. */
            if (connect(file, (void *)&to, sizeof(to)) && errno != EINPROGRESS)
                die("connect");
            files[count] = file;
            polled[count++] = (struct pollfd){ .fd = file, .events = POLLOUT };
        }
        if (!warm && now() >= start + warmup) {
            warm = now();
            for (i = 0; i < count; i++)
                begun[i] = acknowledged(files[i]);
        }
        poll(polled, count, 10);
        for (i = 0; i < count; i++)
            if (polled[i].revents & POLLOUT)
                send(files[i], block, sizeof(block), MSG_DONTWAIT);
    }
    for (i = 0; i < count; i++)
        printf("%s%.0f", i ? " " : "", (acknowledged(files[i]) - begun[i]) * 8e-3 / (now() - warm));
    printf("\n");
}

/* Reads all frames of an interface until it is killed. */
static void capture(const char *dev)
{
    struct sockaddr_ll a = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(dev) };
    int file = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

    if (bind(file, (void *)&a, sizeof(a)))
        die(dev);
    for (;;)
        if (recv(file, block, sizeof(block), 0) < 0)
            die("recv");
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "sink"))
        sink(atoi(argv[2]));
    else if (argc == 8 && !strcmp(argv[1], "send"))
        send_all(address(argv[2], atoi(argv[3])), argv[4], atoi(argv[5]), atof(argv[6]), atof(argv[7]));
    else if (argc == 3 && !strcmp(argv[1], "capture"))
        capture(argv[2]);
    else {
        fprintf(stderr, "traffic sink PORT, send ADDRESS PORT CONTROL FLOWS SECONDS WARMUP, or capture DEV\n");
        return 2;
    }
    return 0;
}
