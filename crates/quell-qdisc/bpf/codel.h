/*
 * CoDel's law, one packet at a time: the same integers and the same decisions as `src/disciplines/codel.rs`.
 *
 * RFC 8289 as in Linux (include/net/codel_impl.h). A dequeue is a bounded loop around codel_judge(), so that a BPF program
 * can run it: the loop pops a packet, judges it, and drops or sends it. Nothing here needs the kernel.
 *
 *     phase = CODEL_FIRST
 *     repeat:
 *         pop a packet; if there is none: codel_empty(), stop
 *         if codel_judge() is CODEL_SEND: send it, stop
 *         if it is CODEL_MARK: mark and send it, stop
 *         drop it
 *
 * Times are nanoseconds. BPF calls take five arguments at most: codel_judge() must be inlined.
 */
#ifndef QUELL_CODEL_H
#define QUELL_CODEL_H

#include "types.h"

struct codel_params {
    u64 target;
    u64 interval;
    u32 mtu; /* the law does not act while at most this many bytes are queued behind a packet */
};

/* One per queue, all zeros at first; the fields are those of `codel::State`. */
struct codel_state {
    u64 first_above_time;
    u64 drop_next;
    u64 ldelay;
    u32 count;
    u32 lastcount;
    u16 rec_inv_sqrt;
    u16 dropping;
};

/* Phase of a dequeue: at its first packet, after the drop that began an episode, or within one. */
enum codel_phase { CODEL_FIRST, CODEL_OPENED, CODEL_WITHIN };

enum codel_verdict { CODEL_SEND, CODEL_MARK, CODEL_DROP };

static always_inline void codel_newton_step(struct codel_state *state)
{
    u64 x = (u64)state->rec_inv_sqrt << 16;
    u64 square = x * x >> 32;
    u64 v = ((3ULL << 32) - state->count * square) >> 2;

    state->rec_inv_sqrt = v * x >> 31 >> 16;
}

/* RFC 8289, section 5.4 */
static always_inline u64 codel_control_law(const struct codel_state *state, u64 t, u64 interval)
{
    return t + (interval * state->rec_inv_sqrt >> 16);
}

/* RFC 8289, section 5.5: 1 if the delay has been above target for a whole interval. */
static always_inline int codel_over(struct codel_state *state, const struct codel_params *params, u64 enqueued, u64 behind, u64 now)
{
    state->ldelay = now - enqueued;
    if (state->ldelay < params->target || behind <= params->mtu) {
        state->first_above_time = 0;
        return 0;
    }
    if (!state->first_above_time) {
        state->first_above_time = now + params->interval;
        return 0;
    }
    return now > state->first_above_time;
}

/* Begins an episode, at the drop rate of the last one if that was within 16 intervals. */
static always_inline void codel_begin(struct codel_state *state, const struct codel_params *params, u64 now)
{
    u32 delta = state->count - state->lastcount;

    state->dropping = 1;
    if (delta > 1 && state->drop_next && now < state->drop_next + 16 * params->interval) {
        state->count = delta;
        codel_newton_step(state);
    } else {
        state->count = 1;
        state->rec_inv_sqrt = 0xffff;
    }
    state->lastcount = state->count;
    state->drop_next = codel_control_law(state, now, params->interval);
}

/* The fate of a packet that has just been popped, with `behind` bytes left behind it; `markable`: ECN is on and it can be marked. */
static always_inline enum codel_verdict codel_judge(struct codel_state *state, const struct codel_params *params,
                                                    enum codel_phase *phase, u64 enqueued, u64 behind, u64 now, int markable)
{
    int over = codel_over(state, params, enqueued, behind, now);

    if (*phase == CODEL_OPENED)
        return CODEL_SEND;
    if (!over) {
        state->dropping = 0;
        return CODEL_SEND;
    }
    if (*phase == CODEL_FIRST && !state->dropping) {
        codel_begin(state, params, now);
        *phase = CODEL_OPENED;
        return markable ? CODEL_MARK : CODEL_DROP;
    }
    /* Each drop is due interval / sqrt(count) after the due time of the previous one, not after now. */
    if (*phase == CODEL_WITHIN)
        state->drop_next = codel_control_law(state, state->drop_next, params->interval);
    if (now < state->drop_next)
        return CODEL_SEND;
    state->count++;
    codel_newton_step(state);
    *phase = CODEL_WITHIN;
    if (!markable)
        return CODEL_DROP;
    state->drop_next = codel_control_law(state, state->drop_next, params->interval);
    return CODEL_MARK;
}

/* No packet was left to pop. */
static always_inline void codel_empty(struct codel_state *state, enum codel_phase phase)
{
    state->first_above_time = 0;
    if (phase != CODEL_OPENED)
        state->dropping = 0;
}

#endif
