/* `quell_fifo`: a FIFO with a limit, whose knobs an outside controller can set. */
#include "fifo.h"

#include "discipline.bpf.h"

DISCIPLINE(fifo);
