/*
 * The network of ../../bpf/rlaqm.h, driven by standard input. Lines: `n US USED HUNDREDTHS`, what the network reads (microseconds of
 * delay, utilisation times 2^16); output: its action. Or `g TIME BACKLOG DEPARTED RATE`, gauges as a controller gets them; output:
 * the probability after the decision, in hundredths.
 */
#include <stdio.h>

#include "../../bpf/rlaqm.h"

int main(void)
{
    static struct network network;
    u64 a, b, c, rate;
    char what;

    while (scanf(" %c %llu %llu %llu", &what, &a, &b, &c) == 4) {
        if (what == 'n') {
            printf("%d\n", network_action(&network, a, b, c));
            continue;
        }
        if (scanf("%llu", &rate) != 1)
            return 2;
        network.departed_bytes = c;
        network.rate = rate;
        network_decide(&network, a, b);
        printf("%d\n", network.hundredths);
    }
    return 0;
}
