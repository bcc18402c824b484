/*
 * A discipline of ../../bpf (the header that DISCIPLINE names), driven by standard input, for tests/it/bpf.rs to compare with quell's own.
 *
 * Arguments: limit (packets), flags (enum quell_flags), target, interval (ns). Lines: `a TIME BYTES HASH ECN`, an arrival, numbered
 * from 0; `d TIME`, a dequeue. Output: a line per fate: `o N` dropped because of a limit, `x N` dropped by the law, `s N` sent,
 * `m N` sent with a new mark, `-` nothing to send; after each dequeue `g` with the gauges.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include DISCIPLINE

static struct queue queue;
static struct quell_gauges gauges;
static u32 numbers[PACKETS];

static void print_drops(void)
{
    s32 at;

    while ((at = flows_dropped(&queue.flows)) != NONE) {
        printf("%c %u\n", packet_at(&queue.flows, at)->cause == OVERFLOW ? 'o' : 'x', numbers[at]);
        flows_release(&queue.flows, at);
    }
}

static void print_gauges(void)
{
    const struct quell_gauges *g = &gauges;

    queue_gauges(&queue, &gauges);
    printf("g %u %llu %llu %u %llu %llu %llu %llu %llu %llu %u %u\n", queue.flows.packets_queued, queue.flows.bytes, g->marks, g->flows,
           g->rate, g->round_trip, g->target, g->wait, g->hold, g->cap, g->idle, g->trusted);
}

int main(int argc, char **argv)
{
    struct quell_knobs knobs = { 0 };
    u32 number = 0, bytes, hash, ecn;
    u64 now;
    char what;

    if (argc != 5)
        return 2;
    knobs.limit = strtoul(argv[1], NULL, 10);
    knobs.flags = strtoul(argv[2], NULL, 10);
    knobs.target = strtoull(argv[3], NULL, 10);
    knobs.interval = strtoull(argv[4], NULL, 10);
    /* The memory that the kernel provides need not be zero. */
    memset(&queue, 0xa5, sizeof(queue));
    queue_init(&queue, 0);
    queue_set(&queue, &knobs, 0);

    while (scanf(" %c %llu", &what, &now) == 2) {
        s32 at, paid;

        if (what == 'a') {
            if (scanf("%u %u %u", &bytes, &hash, &ecn) != 3)
                return 2;
            paid = (ecn == ECT_0 || ecn == ECT_1) && flows_pay(&queue.flows, hash);
            at = queue_enqueue(&queue, hash, bytes, paid ? CE : ecn, now);
            if (at == NONE) {
                printf("o %u\n", number++);
            } else {
                packet_at(&queue.flows, at)->marked = paid;
                numbers[at] = number++;
            }
            print_drops();
            continue;
        }
        at = queue_dequeue(&queue, now);
        print_drops();
        if (at == NONE) {
            printf("-\n");
        } else {
            printf("%c %u\n", packet_at(&queue.flows, at)->marked ? 'm' : 's', numbers[at]);
            flows_release(&queue.flows, at);
        }
        print_gauges();
    }
    return 0;
}
