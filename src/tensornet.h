/* All public declarations: what this repository's own programs include, with -Isrc. Everybody else has the one header, which
   is made of the same files. */
#pragma once
#include "config.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "core/core.h"
#include "tensor/tensor.h"
#include "comm/comm.h"
#include "tape/tape.h"
#include "ops/ops.h"
#include "algebra/algebra.h"
#include "decomp/decomp.h"
#include "layers/layers.h"
#include "operator/operator.h"
#include "analysis/analysis.h"
#include "network/network.h"
#include "mps/mps.h"
#include "optim/optim.h"
#include "io/io.h"
#include "text/text.h"
#include "models/models.h"
#include "circuits/circuits.h"
#include "image/image.h"
#ifdef __cplusplus
}
#endif
