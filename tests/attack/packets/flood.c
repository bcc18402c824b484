/*
 * Sends frames of one kind, which cost much to handle, out of a device, for tests/attack/packets/attach_guest.sh:
 *
 *   flood DEVICE flows|bytes|extensions|tags|large COUNT
 *
 * Prints the number of frames that the kernel accepted.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned char frame[70000];
static unsigned seed = 7;

static unsigned word(void)
{
    seed = seed * 1664525 + 1013904223;
    return seed >> 8;
}

static void noise(unsigned char *to, unsigned length)
{
    while (length--)
        *to++ = word();
}

/* An IPv4 header for `length` bytes, without a checksum, which is not verified on output. */
static unsigned char *four(unsigned char *at, unsigned protocol, unsigned length)
{
    unsigned char ip[20] = { 0x45, 2, (20 + length) >> 8, 20 + length, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 7, 0, 1, 10, 7, 0, 2 };

    memcpy(at, ip, 20);
    return at + 20;
}

static unsigned udp(unsigned char *at, unsigned n)
{
    unsigned char head[8] = { n >> 8, n, n >> 24, n >> 16, 0, 26 };

    memcpy(four(at, 17, 26), head, 8);
    return 46;
}

static unsigned made(const char *kind, unsigned n, unsigned char *at)
{
    unsigned length = 12, k;

    memset(frame, 0, sizeof(frame));
    memset(at, 2, 12);
    if (!strcmp(kind, "bytes")) {
        noise(at + 12, 200);
        return 14 + n % 200;
    }
    if (!strcmp(kind, "tags"))
        for (k = n % 9; k; k--, length += 4) {
            at[length] = k % 2 ? 0x81 : 0x88;
            at[length + 1] = k % 2 ? 0x00 : 0xa8;
            noise(at + length + 2, 2);
        }
    if (!strcmp(kind, "extensions")) {
        memcpy(at + 12, "\x86\xdd\x60\0\0\0\x04\xb0\x3c\x40", 10);
        noise(at + 22, 32);
        for (k = 0; k < 150; k++)
            at[54 + 8 * k] = 60;
        return 54 + 1200;
    }
    at[length] = 8;
    if (strcmp(kind, "large"))
        return length + 2 + udp(at + length + 2, n);
    /* 1000 bytes to be cut into packets of 1 or 8 bytes each, or not at all. */
    four(at + 14, 6, 1020);
    memcpy(at + 34, &n, 4);
    at[46] = 0x50;
    at[47] = 0x10;
    return 1054;
}

int main(int count, char **words)
{
    struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(3) };
    struct virtio_net_hdr about = { .flags = 1, .gso_type = 1, .hdr_len = 54, .csum_start = 34, .csum_offset = 16 };
    int s = socket(AF_PACKET, SOCK_RAW, 0), one = 1, large = count > 2 && !strcmp(words[2], "large");
    unsigned n, taken = 0, most = count > 3 ? atoi(words[3]) : 0, before = large ? sizeof(about) : 0;

    if (s < 0 || !most)
        return 1;
    to.sll_ifindex = if_nametoindex(words[1]);
    if (bind(s, (struct sockaddr *)&to, sizeof(to)))
        return 1;
    if (large && setsockopt(s, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)))
        return 1;
    for (n = 0; n < most; n++) {
        unsigned length = made(words[2], n, frame + before);
        unsigned short size[4] = { 1, 1, 8, 1448 };

        if (large) {
            about.gso_size = size[n % 4];
            memcpy(frame, &about, sizeof(about));
        }
        taken += send(s, frame, before + length, MSG_DONTWAIT) > 0;
    }
    printf("%u\n", taken);
    return 0;
}
