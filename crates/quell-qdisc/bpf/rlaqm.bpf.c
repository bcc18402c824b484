/* `quell_rlaqm`: rlaqm.h in the kernel. */
#include "rlaqm.h"

#include "discipline.bpf.h"

DISCIPLINE(rlaqm);
