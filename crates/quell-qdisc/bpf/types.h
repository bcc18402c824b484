/*
 * Integers, and constructs that differ between a program for the kernel and one for this machine.
 *
 * The disciplines are compiled twice: by `cc` for tests, and by clang for the kernel's verifier, which must see that each index is
 * within its array and each loop ends.
 */
#ifndef QUELL_TYPES_H
#define QUELL_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define always_inline inline __attribute__((always_inline))

#ifdef __bpf__

#define global __attribute__((noinline))
#define nonnull __attribute__((btf_decl_tag("arg:nonnull")))
#define ksym __attribute__((section(".ksyms")))

struct bpf_iter_num {
    u64 opaque[1];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) ksym;

/* A loop of at most `n` rounds, which the verifier walks until its state repeats, not `n` times. `i` counts the rounds; the verifier
 * treats it as unknown, whereas a variable that the loop increments would have a different value in each round. */
#define repeat(i, n) \
    for (struct bpf_iter_num rounds __attribute__((cleanup(bpf_iter_num_destroy))), \
         *once = (bpf_iter_num_new(&rounds, 0, (n)), (void)bpf_iter_num_destroy, (void *)0); \
         ({ int *round = bpf_iter_num_next(&rounds); (void)once; if (round) i = *round; (void)i; round; });)

/* In assembler, because clang omits a mask that it can prove redundant and the verifier cannot. */
#define masked(i, mask) \
    ({ u64 index_ = (i); asm volatile("%0 &= %1" : "+r"(index_) : "i"(mask)); index_; })

#else

/* A function that the verifier walks once, not once for each call; it must return a number. */
#define global static inline
#define nonnull
#define repeat(i, n) for (i = 0; i < (u32)(n); i++)
#define masked(i, mask) ((u64)(i) & (mask))

#endif

#endif
