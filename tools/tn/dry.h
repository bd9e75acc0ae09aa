/* dry.h - steps that compute nothing, to learn what memory they need */
#ifndef TN_DRY_H
#define TN_DRY_H

#include "tensornet.h"

/* Like the backend cuda it is of a device, accepts BF16, and keeps weights in BF16 beside those in F32. What kernels keep for
   themselves is not counted. */
const tn_backend *dry_backend(void);
/* The first of so many processes, whose carrier takes memory of devices. */
tn_comm dry_comm(int size);

#endif
