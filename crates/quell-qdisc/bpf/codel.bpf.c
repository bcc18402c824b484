/* `quell_codel`: codel_fifo.h in the kernel. */
#include "codel_fifo.h"

#include "discipline.bpf.h"

DISCIPLINE(codel);
