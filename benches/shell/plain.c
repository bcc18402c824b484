/* Plain forwarders without a queue, which measure the cost of the interfaces of quell shell and quell live alone.
 *
 *   plain tun NAME NAME offload|single   two TUN devices; packets read from one are written to the other
 *   plain nfqueue NUMBER                 accepts every packet of that packet queue
 *
 * Both print "ready", then run until killed. A sender of datagrams, which needs no receiver:
 *
 *   plain send ADDRESS EACH_MS SECONDS   EACH_MS datagrams of 1400 bytes each millisecond */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int tun(const char *name, int offload) {
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (fd < 0) die("/dev/net/tun");
    struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR };
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (ioctl(fd, TUNSETIFF, &request)) die(name);
    /* The offloads of quell shell; the last two are for UDP, which older kernels refuse. */
    unsigned all = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    if (offload && ioctl(fd, TUNSETOFFLOAD, (unsigned long)(all | 0x60))) ioctl(fd, TUNSETOFFLOAD, (unsigned long)all);
    return fd;
}

static void *forward(void *ends) {
    static __thread char frame[70000];
    int *fd = ends;
    for (;;) {
        ssize_t length = read(fd[0], frame, sizeof frame);
        if (length > 0) {
            if (write(fd[1], frame, length) < 0 && errno != EINVAL && errno != EIO) perror("write");
        } else {
            poll(&(struct pollfd){ .fd = fd[0], .events = POLLIN }, 1, -1);
        }
    }
    return NULL;
}

/* One request to nfnetlink_queue with one attribute. */
static size_t request(char *at, uint16_t kind, uint16_t queue, uint16_t attribute, const void *value, uint16_t size) {
    struct nlmsghdr *n = memset(at, 0, 64);
    struct { uint8_t family, version; uint16_t id; } *g = (void *)(n + 1);
    struct nlattr *a = (void *)(g + 1);
    n->nlmsg_type = 3 << 8 | kind; /* NFNL_SUBSYS_QUEUE */
    n->nlmsg_flags = NLM_F_REQUEST;
    g->id = htons(queue);
    a->nla_type = attribute;
    a->nla_len = sizeof *a + size;
    memcpy(a + 1, value, size);
    return n->nlmsg_len = NLMSG_ALIGN(sizeof *n + sizeof *g + a->nla_len);
}

static void nfqueue(uint16_t queue) {
    static char in[1 << 17], out[1 << 16];
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), room = 16 << 20, one = 1;
    if (fd < 0) die("netfilter");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &one, sizeof one);
    struct nfqnl_msg_config_cmd bind = { .command = NFQNL_CFG_CMD_BIND };
    struct nfqnl_msg_config_params copy = { .copy_range = htonl(0xffff), .copy_mode = NFQNL_COPY_PACKET };
    uint32_t most = htonl(65536);
    size_t n = request(out, NFQNL_MSG_CONFIG, queue, NFQA_CFG_CMD, &bind, sizeof bind);
    n += request(out + n, NFQNL_MSG_CONFIG, queue, NFQA_CFG_PARAMS, &copy, sizeof copy);
    n += request(out + n, NFQNL_MSG_CONFIG, queue, NFQA_CFG_QUEUE_MAXLEN, &most, sizeof most);
    if (send(fd, out, n, 0) < 0) die("nfqueue");
    printf("ready\n");
    fflush(stdout);
    for (n = 0;;) {
        ssize_t length = recv(fd, in, sizeof in, n ? MSG_DONTWAIT : 0);
        if (length < 0 || n > sizeof out - 256) {
            if (n && send(fd, out, n, 0) < 0) die("verdict");
            n = 0;
        }
        struct nlmsghdr *m = (void *)in;
        for (; length > 0 && NLMSG_OK(m, length); m = NLMSG_NEXT(m, length)) {
            if (m->nlmsg_type != (3 << 8 | NFQNL_MSG_PACKET)) continue;
            /* The packet's number is in its first attribute. */
            struct nlattr *a = (void *)((char *)NLMSG_DATA(m) + 4);
            struct nfqnl_msg_verdict_hdr accept = { .verdict = htonl(NF_ACCEPT) };
            memcpy(&accept.id, a + 1, 4);
            n += request(out + n, NFQNL_MSG_VERDICT, queue, NFQA_VERDICT_HDR, &accept, sizeof accept);
        }
    }
}

static void datagrams(const char *address, int each, double seconds) {
    static char data[1400];
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    struct timespec next;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1) die(address);
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (int ms = 0; ms < seconds * 1000; ms++) {
        for (int i = 0; i < each; i++) sendto(fd, data, sizeof data, MSG_DONTWAIT, (void *)&to, sizeof to);
        next.tv_nsec += 1000000;
        if (next.tv_nsec >= 1000000000) next.tv_nsec -= 1000000000, next.tv_sec++;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}

int main(int count, char **v) {
    if (count == 5 && !strcmp(v[1], "tun")) {
        int offload = !strcmp(v[4], "offload");
        int there[2] = { tun(v[2], offload), tun(v[3], offload) }, back[2] = { there[1], there[0] };
        pthread_t thread;
        printf("ready\n");
        fflush(stdout);
        pthread_create(&thread, NULL, forward, back);
        forward(there);
    }
    if (count == 3 && !strcmp(v[1], "nfqueue")) nfqueue(atoi(v[2]));
    if (count == 5 && !strcmp(v[1], "send")) {
        datagrams(v[2], atoi(v[3]), atof(v[4]));
        return 0;
    }
    fprintf(stderr, "plain: see plain.c\n");
    return 2;
}
