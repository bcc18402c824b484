/*
 * Natural logarithm and exponential in integers, and arithmetic in 128 bits: the same bits as `src/disciplines/hush/fixed.rs`.
 *
 * BPF instructions multiply and divide unsigned 64-bit numbers.
 */
#ifndef QUELL_FIXED_H
#define QUELL_FIXED_H

#include "hush_numbers.h"
#include "types.h"

enum { Q = 16 };
#define ONE (1LL << Q)
#define LN2 0xb17217f8ULL
#define LN2_Q 45426LL
#define LOG2_E 0x171547653LL
#define MOST_Q (1ULL << 62)

struct wide {
    u64 high, low;
};

static always_inline u64 min64(u64 a, u64 b)
{
    return a < b ? a : b;
}

static always_inline u64 max64(u64 a, u64 b)
{
    return a > b ? a : b;
}

static always_inline s64 clamped(s64 x, s64 low, s64 high)
{
    return x < low ? low : x > high ? high : x;
}

static always_inline u64 plus(u64 a, u64 b)
{
    return a + b < a ? ~0ULL : a + b;
}

/* 0 instead of a negative difference. */
static always_inline u64 less(u64 a, u64 b)
{
    return a > b ? a - b : 0;
}

static always_inline struct wide product(u64 a, u64 b)
{
    u64 a1 = a >> 32, a0 = (u32)a, b1 = b >> 32, b0 = (u32)b;
    u64 low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (u32)middle;

    return (struct wide){ a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (u32)low };
}

/* a b / 2^shift, with a shift from 1 to 63; higher bits are lost. */
static always_inline u64 mul_shift(u64 a, u64 b, u32 shift)
{
    struct wide w = product(a, b);

    return w.high << (64 - shift) | w.low >> shift;
}

static always_inline int wider(struct wide a, struct wide b)
{
    return a.high > b.high || (a.high == b.high && a.low > b.low);
}

/* a b / c, for c from 1 to 2^63; higher bits are lost. */
global u64 mul_div(u64 a, u64 b, u64 c)
{
    struct wide w = product(a, b);
    u64 rest, quotient = 0;
    u32 i;

    if (!c)
        return 0;
    if (!w.high)
        return w.low / c;
    rest = w.high % c;
    repeat (i, 64) {
        rest = rest << 1 | w.low >> 63;
        w.low <<= 1;
        quotient <<= 1;
        if (rest >= c) {
            rest -= c;
            quotient |= 1;
        }
    }
    return quotient;
}

/* Interpolates between two entries of a table, at `part` of 2^26. */
static always_inline u64 between(const u32 *table, u64 i, u64 part)
{
    u64 low = table[masked(i, 63)], high = table[masked(i, 63) + 1];

    return low + ((high - low) * part >> 26);
}

/* ln x with Q fractional bits; 0 for x = 0. */
global s64 ln(u64 x)
{
    u32 whole;
    u64 rest, log2;

    if (!x)
        x = 1;
    whole = 63 - __builtin_clzll(x);
    /* The 32 bits after the leading one. */
    rest = x << (63 - whole) << 1 >> 32;
    log2 = ((u64)whole << 30) + between(LOGS, rest >> 26, rest & ((1 << 26) - 1));
    return mul_shift(log2, LN2, 62 - Q);
}

/* e^x rounded down, with `bits` fractional bits, for x with Q; at most 2^62. */
global u64 power(s64 x, s64 bits)
{
    /* Beyond these the result does not change. */
    s64 log2 = clamped(x, -(1LL << 30), 1LL << 30) * LOG2_E >> Q, whole = (log2 >> 32) + bits;
    u64 rest = log2 & 0xffffffff, p;

    if (whole < -30)
        return 0;
    if (whole >= 62)
        return MOST_Q;
    p = between(POWERS, rest >> 26, rest & ((1 << 26) - 1));
    return whole >= 30 ? p << (whole - 30) : p >> (30 - whole);
}

/* x times e^y, at most 2^62. */
global u64 scaled(u64 x, s64 y)
{
    struct wide w = product(x, power(y, 32));

    return w.high >> 30 ? MOST_Q : min64(w.high << 32 | w.low >> 32, MOST_Q);
}

/* Weight of a new value that covers `span` in an exponential average: 1 - e^(-span / constant), with 30 fractional bits. */
global s64 decay(u64 span, u64 constant)
{
    u64 ratio = 32 << Q;

    if (!constant)
        constant = 1;
    if (span / 32 < constant)
        ratio = min64((span << Q) / constant, ratio);
    return (1LL << 30) - (s64)min64(power(-(s64)ratio, 30), 1 << 30);
}

/* `mean`, moved towards `x` by a weight from decay(). */
global s64 approached(s64 mean, s64 x, s64 share)
{
    struct wide w;

    if (x >= mean)
        return mean + mul_shift(x - mean, share, 30);
    w = product(mean - x, share);
    /* Round down here, too. */
    w.low += (1 << 30) - 1;
    if (w.low < (1 << 30) - 1)
        w.high++;
    return mean - (w.high << 34 | w.low >> 30);
}

#endif
