/* `quell_fifo`: a FIFO with a limit; the frame alone, and a knob for a controller outside. */
#include "fifo.h"

#include "discipline.bpf.h"

DISCIPLINE(fifo);
