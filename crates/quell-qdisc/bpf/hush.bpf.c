/* `quell_hush`: hush.h in the kernel. */
#include "hush.h"

#include "discipline.bpf.h"

DISCIPLINE(hush);
