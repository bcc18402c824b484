/* `quell_fq_codel`: fq_codel.h in the kernel. */
#include "fq_codel.h"

#include "discipline.bpf.h"

DISCIPLINE(fq_codel);
