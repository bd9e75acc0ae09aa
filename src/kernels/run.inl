#if TNI_ALL
/* ---- embed_backward, see >>op-embed ------------------------------------- >>pass-embed
   A task has some of the columns of all rows, so that rows are added in their order. */
TNI_FAST void TNI_T(embed_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_pass *p = (const tni_pass *)arg;
    const tn_call  *c = p->call;
    const int32_t  *ids = (const int32_t *)c->in[0].data;
    const TNI_REAL *dy = (const TNI_REAL *)c->in[1].data;
    TNI_REAL       *to = (TNI_REAL *)c->out[0].data;
    const int64_t   d = c->in[1].shape[1], begin = task * p->share, n = tni_min(p->share, d - begin);
    (void)worker;
    for (int64_t r = 0; r < c->in[1].shape[0]; r++)
        if (ids[r] >= 0 && ids[r] < c->out[0].shape[0])
            TNI_T(row_add)(to + ids[r] * d + begin, dy + r * d + begin, n, 1);
}

TNI_FAST tn_status TNI_T(embed_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t d = c->in[1].shape[1], R = c->in[1].shape[0];
    tni_pass      p;
    p.cpu = cpu;
    p.call = c;
    p.share = 64;
    tni_parallel_for(R * d <= TNI_CPU_ALONE ? &tni_alone : &cpu->pool, tni_ceil_div(d, p.share), TNI_T(embed_backward_task),
                     &p);
    return TN_OK;
}
#endif /* TNI_ALL */

#if TNI_ALL && TNI_BITS == 32
/* The task of a kernel that pass_run divides into rows or parts; NULL: of others. */
TNI_FAST tn_task_fn TNI_T(task_of)(const tn_call *c)
{
    switch (c->kernel) {
    case TN_KERNEL_SOFTMAX:          return TNI_T(softmax_task);
    case TN_KERNEL_ACT:              return TNI_T(act_task);
    case TN_KERNEL_UNIFORM:          return TNI_T(uniform_task);
    case TN_KERNEL_NORMAL:           return TNI_T(normal_task);
    case TN_KERNEL_RMSNORM:          return TNI_T(rmsnorm_task);
    case TN_KERNEL_RESIDUAL_RMSNORM: return TNI_T(residual_rmsnorm_task);
    case TN_KERNEL_LAYERNORM:        return TNI_T(layernorm_task);
    case TN_KERNEL_GLU:              return TNI_T(glu_task);
    case TN_KERNEL_PROD:             return TNI_T(prod_task);
#ifndef TN_NO_TRAINING
    case TN_KERNEL_SOFTMAX_BACKWARD: return TNI_T(softmax_backward_task);
    case TN_KERNEL_ACT_BACKWARD:     return TNI_T(act_backward_task);
    case TN_KERNEL_DROPOUT:          return TNI_T(dropout_task);
    case TN_KERNEL_MUON_END:         return TNI_T(muon_end_task);
    case TN_KERNEL_GLU_BACKWARD:     return TNI_T(glu_backward_task);
    case TN_KERNEL_PROD_BACKWARD:    return c->i[0] > TNI_PROD_MOST ? NULL : TNI_T(prod_backward_task);
#endif
    default:                         return NULL;
    }
}
#endif

#if TNI_PRODUCTS
/* ---- the entry ---------------------------------------------------------- >>pass-run */
TNI_ISA TNI_FN tn_status TNI_T(run)(void *state, const tn_call *c)
{
    tni_cpu *cpu = (tni_cpu *)state;
    if (tni_call_has_bf16(c) && !(TNI_ALL && tni_takes_bf16(c))) return TN_ERR_DTYPE;
#if TNI_ALL && TNI_BITS == 32
    const tn_task_fn task = TNI_T(task_of)(c);
    if (task) return TNI_T(pass_run)(cpu, c, task);
#endif
    switch (c->kernel) {
    case TN_KERNEL_GEMM:             return TNI_T(gemm_run)(cpu, c);
#if TNI_ALL
#if TNI_SEQUENCES
    case TN_KERNEL_CHAIN:            return TNI_T(chain_run)(cpu, c, TNI_T(chain_task));
    case TN_KERNEL_SCAN:
    case TN_KERNEL_SCAN_STATES:      return TNI_T(any_scan_run)(cpu, c);
    case TN_KERNEL_ROPE:             return TNI_T(rope_run)(cpu, c);
    case TN_KERNEL_ATTENTION:        return TNI_T(attention_run)(cpu, c);
    case TN_KERNEL_ATTENTION_LINEAR: return TNI_T(attention_linear_run)(cpu, c);
#ifndef TN_NO_TRAINING
    case TN_KERNEL_CHAIN_BACKWARD:   return TNI_T(chain_run)(cpu, c, TNI_T(chain_backward_task));
    case TN_KERNEL_SCAN_BACKWARD:
    case TN_KERNEL_SCAN_STATES_BACKWARD: return TNI_T(any_scan_run)(cpu, c);
    case TN_KERNEL_SCAN_CORES:       return TNI_T(scan_cores_run)(cpu, c);
    case TN_KERNEL_ROPE_BACKWARD:    return TNI_T(rope_run)(cpu, c);
    case TN_KERNEL_ATTENTION_BACKWARD: return TNI_T(attention_backward_run)(cpu, c);
    case TN_KERNEL_ATTENTION_LINEAR_BACKWARD: return TNI_T(attention_linear_backward_run)(cpu, c);
#endif
#endif /* TNI_SEQUENCES */
#ifndef TN_NO_TRAINING
    case TN_KERNEL_EMBED_BACKWARD:   return TNI_T(embed_backward_run)(cpu, c);
#endif
#if TNI_BITS == 32
    case TN_KERNEL_ADD:
    case TN_KERNEL_MUL:
    case TN_KERNEL_DIV:              return TNI_T(binary_run)(cpu, c);
    case TN_KERNEL_COPY:             return tni_cast_run(cpu, c, TNI_T(cast_task));
    case TN_KERNEL_SUM:              return TNI_T(sum_run)(cpu, c);
    case TN_KERNEL_CROSS_ENTROPY:    return TNI_T(cross_entropy_run)(cpu, c);
#ifndef TN_NO_TRAINING
    case TN_KERNEL_RMSNORM_BACKWARD: return TNI_T(rmsnorm_backward_run)(cpu, c);
    case TN_KERNEL_LAYERNORM_BACKWARD: return TNI_T(layernorm_backward_run)(cpu, c);
    case TN_KERNEL_SUMSQ:
    case TN_KERNEL_ADAMW:
    case TN_KERNEL_SGD:              return TNI_T(series_run)(cpu, c);
    case TN_KERNEL_MUON_BEGIN:       return TNI_T(muon_begin_run)(cpu, c);
    case TN_KERNEL_PROD_BACKWARD:    return TNI_T(rarely)(cpu, c);
#endif
#endif
#endif /* TNI_ALL */
#if TNI_ALL || TNI_LEVEL == 0
    default:                         return tni_reference_run(cpu, c);
#else
    default:                         return tni_f64_run_plain(cpu, c);
#endif
    }
}
#endif /* TNI_PRODUCTS */
