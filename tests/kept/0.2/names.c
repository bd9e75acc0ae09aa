/* All names of version 0.2: each function is called with arguments of the types that it declared, each field is read or set, each
   constant is used. It is compiled and linked, as C and as C++; nothing of it runs. Left out is what was marked as
   experimental, and what only backends use (TN_BACKEND_ABI). */
#include <stdio.h>
#include "tensornet.h"

#define OF(T) (*(T *)at)                    /* something of this type */

static void functions(void *at)
{
    OF(tn_status) = tn_ctx_create(OF(const tn_desc *), OF(tn_ctx **), OF(char *));
    tn_ctx_destroy(OF(tn_ctx *));
    OF(tn_status) = tn_ctx_status(OF(const tn_ctx *));
    OF(const char *) = tn_ctx_error(OF(const tn_ctx *));
    tn_ctx_clear_error(OF(tn_ctx *));
    OF(size_t) = tn_printable(OF(char *), OF(size_t), OF(bool));
    OF(tn_status) = tn_ctx_sync(OF(tn_ctx *));
    tn_ctx_reset(OF(tn_ctx *));
    tn_ctx_seed(OF(tn_ctx *), OF(uint64_t));
    OF(tn_memory) = tn_ctx_memory(OF(const tn_ctx *));
    OF(tn_dtype) = tn_ctx_dtype(OF(const tn_ctx *));
    OF(tn_dtype) = tn_ctx_activations(OF(const tn_ctx *));
    OF(int) = tn_ctx_threads(OF(const tn_ctx *));
    OF(const char *) = tn_ctx_backend_name(OF(const tn_ctx *));
    OF(const char *) = tn_ctx_simd_name(OF(const tn_ctx *));
    OF(const char *) = tn_status_name(OF(tn_status));
    OF(const char *) = tn_version();
    OF(const char *) = tn_dtype_name(OF(tn_dtype));
    OF(tn_mark) = tn_arena_mark(OF(const tn_ctx *));
    OF(tn_status) = tn_arena_release(OF(tn_ctx *), OF(tn_mark));
    OF(const tn_backend *) = tn_reference_backend();
    OF(const tn_backend *) = tn_cpu_backend();
    OF(const char *) = tn_kernel_name(OF(tn_kernel));
    OF(uint64_t) = tn_ctx_kernel_calls(OF(const tn_ctx *), OF(tn_kernel));
    OF(tn_tensor *) = tn_tensor_nd(OF(tn_ctx *), OF(tn_dtype), OF(int), OF(const int64_t *));
    OF(tn_tensor *) = tn_tensor_1d(OF(tn_ctx *), OF(tn_dtype), OF(int64_t));
    OF(tn_tensor *) = tn_tensor_2d(OF(tn_ctx *), OF(tn_dtype), OF(int64_t), OF(int64_t));
    OF(tn_tensor *) = tn_tensor_3d(OF(tn_ctx *), OF(tn_dtype), OF(int64_t), OF(int64_t), OF(int64_t));
    OF(tn_tensor *) = tn_tensor_from(OF(tn_ctx *), OF(int), OF(const int64_t *), OF(tn_dtype), OF(const void *));
    OF(tn_tensor *) = tn_tensor_create(OF(tn_ctx *), OF(tn_dtype), OF(int), OF(const int64_t *));
    tn_tensor_destroy(OF(tn_tensor *));
    OF(tn_tensor *) = tn_tensor_keep(OF(const tn_tensor *));
    OF(int64_t) = tn_tensor_count(OF(const tn_tensor *));
    OF(bool) = tn_tensor_is_contiguous(OF(const tn_tensor *));
    OF(tn_status) = tn_write(OF(tn_tensor *), OF(tn_dtype), OF(const void *), OF(int64_t));
    OF(tn_status) = tn_read(OF(const tn_tensor *), OF(tn_dtype), OF(void *), OF(int64_t));
    OF(double) = tn_item(OF(const tn_tensor *));
    OF(tn_status) = tn_assign(OF(tn_tensor *), OF(const tn_tensor *));
    OF(tn_tensor *) = tn_slice(OF(tn_tensor *), OF(int), OF(int64_t), OF(int64_t));
    OF(tn_tensor *) = tn_slice_step(OF(tn_tensor *), OF(int), OF(int64_t), OF(int64_t), OF(int64_t));
    OF(tn_tensor *) = tn_transpose(OF(tn_tensor *), OF(int), OF(int));
    OF(tn_tensor *) = tn_reshape(OF(tn_tensor *), OF(int), OF(const int64_t *));
    OF(tn_tensor *) = tn_reshape_2d(OF(tn_tensor *), OF(int64_t), OF(int64_t));
    OF(int64_t) = tn_tensor_format(OF(const tn_tensor *), OF(char *), OF(size_t));
    OF(int64_t) = tn_tensor_table(OF(const tn_tensor *), OF(const tn_tensor_table_desc *), OF(char *), OF(size_t));
    tn_record(OF(tn_ctx *));
    OF(tn_status) = tn_backward(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_status) = tn_watch(OF(tn_tensor *));
    OF(tn_tensor *) = tn_copy(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_cast(OF(tn_ctx *), OF(tn_tensor *), OF(tn_dtype));
    OF(tn_tensor *) = tn_full(OF(tn_ctx *), OF(int), OF(const int64_t *), OF(double));
    OF(tn_tensor *) = tn_uniform(OF(tn_ctx *), OF(int), OF(const int64_t *), OF(double), OF(double));
    OF(tn_tensor *) = tn_normal(OF(tn_ctx *), OF(int), OF(const int64_t *), OF(double), OF(double));
    OF(tn_tensor *) = tn_eye(OF(tn_ctx *), OF(int64_t));
    OF(tn_tensor *) = tn_add(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_sub(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_mul(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_div(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_scale(OF(tn_ctx *), OF(tn_tensor *), OF(double));
    OF(tn_tensor *) = tn_sqrt(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_exp(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_log(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_where(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_sum(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_mean(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_sum_axis(OF(tn_ctx *), OF(tn_tensor *), OF(int));
    OF(tn_tensor *) = tn_matmul(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_affine(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_activation(OF(tn_ctx *), OF(tn_tensor *), OF(tn_act));
    OF(tn_tensor *) = tn_glu(OF(tn_ctx *), OF(tn_tensor *), OF(tn_act));
    OF(tn_tensor *) = tn_prod_parts(OF(tn_ctx *), OF(tn_tensor *), OF(int64_t));
    OF(tn_tensor *) = tn_append_one(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_concat(OF(tn_ctx *), OF(int64_t), OF(tn_tensor * const *), OF(int));
    OF(tn_tensor *) = tn_stack(OF(tn_ctx *), OF(int64_t), OF(tn_tensor * const *), OF(int));
    OF(tn_tensor *) = tn_gather(OF(tn_ctx *), OF(tn_tensor *), OF(int), OF(tn_tensor *));
    OF(tn_tensor *) = tn_embed(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_rmsnorm(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(double));
    OF(tn_tensor *) = tn_residual_rmsnorm(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *), OF(double),
        OF(tn_tensor **));
    OF(tn_tensor *) = tn_layernorm(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *), OF(double));
    OF(tn_tensor *) = tn_softmax(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_log_softmax(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_noise(OF(tn_ctx *), OF(tn_tensor *), OF(double));
    OF(tn_tensor *) = tn_dropout(OF(tn_ctx *), OF(tn_tensor *), OF(double));
    OF(tn_tensor *) = tn_chain(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor **));
    OF(tn_tensor *) = tn_scan(OF(tn_ctx *), OF(tn_tensor *), OF(bool), OF(tn_tensor **));
    OF(tn_tensor *) = tn_scan_vector(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(bool), OF(tn_tensor **));
    OF(tn_tensor *) = tn_scan_states(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *), OF(bool), OF(tn_tensor
        **));
    OF(tn_tensor *) = tn_scan_blocks(OF(tn_ctx *), OF(tn_tensor *), OF(int64_t), OF(bool), OF(tn_tensor **));
    OF(tn_tensor *) = tn_rope(OF(tn_ctx *), OF(tn_tensor *), OF(const tn_rope_desc *));
    OF(tn_tensor *) = tn_attend(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *), OF(const tn_attend_desc *));
    OF(tn_tensor *) = tn_cross_entropy(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_cross_entropy_ignore(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(int32_t));
    OF(tn_tensor *) = tn_mse(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_argmax(OF(tn_ctx *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_accuracy(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_topk(OF(tn_ctx *), OF(tn_tensor *), OF(int), OF(int64_t), OF(tn_order), OF(tn_tensor **));
    OF(tn_tensor *) = tn_sort(OF(tn_ctx *), OF(tn_tensor *), OF(int), OF(tn_order), OF(tn_tensor **));
    OF(tn_tensor *) = tn_einsum(OF(tn_ctx *), OF(const char *), OF(int64_t), OF(tn_tensor * const *));
    OF(tn_tensor *) = tn_einsum_labels(OF(tn_ctx *), OF(int64_t), OF(tn_tensor * const *), OF(const int * const *), OF(int),
        OF(const int *));
    OF(tn_plan *) = tn_plan_create(OF(tn_ctx *), OF(const char *), OF(int64_t), OF(const int *), OF(const int64_t * const *),
        OF(const tn_plan_desc *));
    OF(tn_plan *) = tn_plan_create_labels(OF(tn_ctx *), OF(int64_t), OF(const int *), OF(const int64_t * const *), OF(const int
        * const *), OF(int), OF(const int *), OF(const tn_plan_desc *));
    OF(tn_tensor *) = tn_plan_run(OF(tn_plan *), OF(int64_t), OF(tn_tensor * const *));
    OF(tn_plan_cost) = tn_plan_cost_of(OF(const tn_plan *));
    OF(int64_t) = tn_plan_format(OF(const tn_plan *), OF(char *), OF(size_t));
    tn_plan_destroy(OF(tn_plan *));
    OF(tn_tensor *) = tn_tensordot(OF(tn_ctx *), OF(tn_tensor *), OF(int), OF(tn_tensor *), OF(int));
    OF(tn_tensor *) = tn_khatri_rao(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_khatri_rao_rows(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_kronecker(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_mode_product(OF(tn_ctx *), OF(tn_tensor *), OF(int), OF(tn_tensor *));
    OF(tn_tensor *) = tn_unfold(OF(tn_ctx *), OF(tn_tensor *), OF(int));
    OF(tn_tensor *) = tn_fold(OF(tn_ctx *), OF(tn_tensor *), OF(int), OF(int), OF(const int64_t *));
    OF(int64_t) = tn_truncation_count(OF(const tn_truncation *), OF(int64_t), OF(const double *), OF(double *));
    OF(tn_status) = tn_eigh(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_eigh_desc *), OF(tn_eigh_result *));
    tn_eigh_destroy(OF(tn_eigh_result *));
    OF(tn_status) = tn_qr(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_qr_desc *), OF(tn_qr_result *));
    tn_qr_destroy(OF(tn_qr_result *));
    OF(tn_status) = tn_svd(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_svd_desc *), OF(tn_svd_result *));
    tn_svd_destroy(OF(tn_svd_result *));
    OF(tn_status) = tn_lstsq(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_tensor *), OF(const tn_lstsq_desc *),
        OF(tn_lstsq_result *));
    tn_lstsq_destroy(OF(tn_lstsq_result *));
    OF(tn_status) = tn_polynomial_fit_init(OF(tn_ctx *), OF(int), OF(double), OF(double), OF(tn_polynomial_fit *));
    OF(tn_status) = tn_polynomial_fit_add(OF(tn_polynomial_fit *), OF(int64_t), OF(const double *), OF(const double *), OF(const
        double *));
    OF(tn_status) = tn_polynomial_fit_read(OF(const tn_polynomial_fit *), OF(int), OF(tn_polynomial *));
    OF(double) = tn_polynomial_value(OF(const tn_polynomial *), OF(double));
    OF(tn_status) = tn_eig(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_eig_desc *), OF(tn_eig_result *));
    tn_eig_destroy(OF(tn_eig_result *));
    OF(tn_status) = tn_lanczos(OF(tn_ctx *), OF(int64_t), OF(tn_matvec_fn), OF(void *), OF(const tn_lanczos_desc *),
        OF(tn_lanczos_result *));
    tn_lanczos_destroy(OF(tn_lanczos_result *));
    OF(tn_tt *) = tn_tt_svd(OF(tn_ctx *), OF(const tn_tensor *), OF(int64_t), OF(const int64_t *), OF(const tn_tt_desc *));
    OF(tn_tt *) = tn_tt_create(OF(tn_ctx *), OF(int64_t), OF(tn_tensor * const *));
    tn_tt_destroy(OF(tn_tt *));
    OF(tn_tt *) = tn_tt_round(OF(const tn_tt *), OF(const tn_tt_desc *));
    OF(tn_tt *) = tn_tt_add(OF(const tn_tt *), OF(const tn_tt *));
    OF(tn_tt *) = tn_tt_scale(OF(const tn_tt *), OF(double));
    OF(tn_status) = tn_tt_inner(OF(const tn_tt *), OF(const tn_tt *), OF(double *));
    OF(tn_status) = tn_tt_norm(OF(const tn_tt *), OF(double *));
    OF(tn_status) = tn_tt_elements(OF(const tn_tt *), OF(int64_t), OF(const int64_t *), OF(double *));
    OF(tn_tensor *) = tn_tt_dense(OF(const tn_tt *));
    OF(tn_status) = tn_hosvd(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_hosvd_desc *), OF(tn_hosvd_result *));
    tn_hosvd_destroy(OF(tn_hosvd_result *));
    OF(tn_status) = tn_cp_als(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_cp_als_desc *), OF(tn_cp_als_result *));
    tn_cp_als_destroy(OF(tn_cp_als_result *));
    OF(tn_status) = tn_joint_eigh(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_joint_eigh_desc *), OF(tn_joint_eigh_result
        *));
    tn_joint_eigh_destroy(OF(tn_joint_eigh_result *));
    OF(tn_status) = tn_ica(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_ica_desc *), OF(tn_ica_result *));
    tn_ica_destroy(OF(tn_ica_result *));
    OF(double) = tn_effective_rank(OF(const double *), OF(int64_t));
    OF(tn_params *) = tn_params_create(OF(tn_ctx *));
    tn_params_destroy(OF(tn_params *));
    OF(tn_ctx *) = tn_params_ctx(OF(const tn_params *));
    OF(int64_t) = tn_params_count(OF(const tn_params *));
    OF(int64_t) = tn_params_elements(OF(const tn_params *));
    OF(tn_param *) = tn_params_at(OF(tn_params *), OF(int64_t));
    OF(tn_param *) = tn_params_find(OF(tn_params *), OF(const char *));
    OF(tn_param *) = tn_params_add(OF(tn_params *), OF(const char *), OF(int), OF(const int64_t *), OF(tn_init));
    OF(tn_status) = tn_params_zero_grad(OF(tn_params *));
    OF(int64_t) = tn_params_freeze(OF(tn_params *), OF(const char *));
    OF(int64_t) = tn_params_thaw(OF(tn_params *), OF(const char *));
    OF(int64_t) = tn_params_set_scales(OF(tn_params *), OF(const char *), OF(double), OF(double));
    OF(int64_t) = tn_params_use_adamw(OF(tn_params *), OF(const char *));
    OF(tn_status) = tn_params_tie(OF(tn_params *), OF(const char *), OF(const char *));
    OF(tn_params *) = tn_params_clone(OF(tn_ctx *), OF(const tn_params *));
    OF(int64_t) = tn_params_rebind(OF(tn_params *), OF(const tn_params *), OF(void *), OF(size_t));
    OF(tn_status) = tn_compact(OF(tn_tensor *), OF(tn_weight_kind), OF(tn_compact_error *));
    OF(tn_weight_kind) = tn_compact_kind(OF(const tn_tensor *));
    OF(const char *) = tn_weight_kind_name(OF(tn_weight_kind));
    OF(tn_status) = tn_linear_init(OF(tn_params *), OF(const char *), OF(const tn_linear_desc *), OF(tn_linear *));
    OF(tn_tensor *) = tn_linear_forward(OF(tn_ctx *), OF(const tn_linear *), OF(tn_tensor *));
    OF(tn_status) = tn_embedding_init(OF(tn_params *), OF(const char *), OF(const tn_embedding_desc *), OF(tn_embedding *));
    OF(tn_tensor *) = tn_embedding_forward(OF(tn_ctx *), OF(const tn_embedding *), OF(tn_tensor *));
    OF(tn_status) = tn_norm_init(OF(tn_params *), OF(const char *), OF(const tn_norm_desc *), OF(tn_norm *));
    OF(tn_tensor *) = tn_norm_forward(OF(tn_ctx *), OF(const tn_norm *), OF(tn_tensor *));
    OF(tn_status) = tn_mlp_init(OF(tn_params *), OF(const char *), OF(const tn_mlp_desc *), OF(tn_mlp *));
    OF(tn_tensor *) = tn_mlp_forward(OF(tn_ctx *), OF(const tn_mlp *), OF(tn_tensor *));
    OF(int) = tn_mlp_encoders(OF(tn_mlp_kind));
    OF(const char *) = tn_mlp_kind_name(OF(tn_mlp_kind));
    OF(tn_tensor *) = tn_mlp_encoder(OF(const tn_mlp *), OF(int64_t));
    OF(tn_status) = tn_quadratic_init(OF(tn_params *), OF(const char *), OF(const tn_quadratic_desc *), OF(tn_quadratic *));
    OF(tn_tensor *) = tn_quadratic_forward(OF(tn_ctx *), OF(const tn_quadratic *), OF(tn_tensor *));
    OF(tn_status) = tn_modifier_init(OF(tn_params *), OF(const char *), OF(const tn_modifier_desc *), OF(tn_modifier *));
    OF(tn_tensor *) = tn_modifier_forward(OF(tn_ctx *), OF(const tn_modifier *), OF(tn_tensor *), OF(tn_tensor **));
    OF(tn_status) = tn_attention_init(OF(tn_params *), OF(const char *), OF(const tn_attention_desc *), OF(tn_attention *));
    OF(tn_tensor *) = tn_attention_forward(OF(tn_ctx *), OF(const tn_attention *), OF(tn_tensor *), OF(tn_tensor **));
    OF(const char *) = tn_attention_kind_name(OF(tn_attention_kind));
    OF(tn_tensor *) = tn_attention_head(OF(const tn_attention *), OF(int64_t), OF(tn_head_part));
    OF(tn_tensor *) = tn_attention_pattern(OF(tn_ctx *), OF(const tn_attention *), OF(tn_tensor *));
    OF(tn_attention_cache *) = tn_attention_cache_create(OF(tn_ctx *), OF(const tn_attention *), OF(int64_t), OF(int64_t));
    tn_attention_cache_destroy(OF(tn_attention_cache *));
    tn_attention_cache_reset(OF(tn_attention_cache *));
    OF(int64_t) = tn_attention_cache_past(OF(const tn_attention_cache *));
    OF(size_t) = tn_attention_cache_bytes(OF(const tn_attention_cache *));
    OF(tn_tensor *) = tn_attention_decode(OF(tn_ctx *), OF(const tn_attention *), OF(tn_tensor *), OF(tn_attention_cache *),
        OF(tn_tensor **));
    OF(tn_status) = tn_tn_attention_init(OF(tn_params *), OF(const char *), OF(const tn_tn_attention_desc *), OF(tn_tn_attention
        *));
    OF(tn_tensor *) = tn_tn_attention_forward(OF(tn_ctx *), OF(const tn_tn_attention *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_tn_attention_weights(OF(tn_ctx *), OF(const tn_tn_attention *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_tn_attention_state(OF(tn_ctx *), OF(const tn_tn_attention *), OF(int64_t));
    OF(tn_tensor *) = tn_tn_attention_decode(OF(tn_ctx *), OF(const tn_tn_attention *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_status) = tn_tn_attention_from_rules(OF(tn_params *), OF(const char *), OF(const int *), OF(int64_t), OF(tn_boundary),
        OF(tn_tn_attention *));
    OF(tn_status) = tn_tn_attention_from_linear_attention(OF(tn_params *), OF(const char *), OF(const tn_tensor *), OF(const
        tn_tensor *), OF(const tn_tensor *), OF(bool), OF(tn_tn_attention *));
    OF(tn_status) = tn_tn_attention_from_permutations(OF(tn_params *), OF(const char *), OF(int64_t), OF(tn_tn_attention *));
    OF(tn_status) = tn_tn_attention_rule(OF(tn_ctx *), OF(const tn_tn_attention *), OF(int64_t), OF(tn_rule_reading *));
    OF(tn_cp *) = tn_cp_create(OF(tn_ctx *), OF(int), OF(const tn_tensor *), OF(tn_tensor * const *), OF(tn_cp_input));
    OF(tn_cp *) = tn_cp_from_mlp(OF(tn_ctx *), OF(const tn_mlp *));
    OF(tn_cp *) = tn_cp_from_mlp_polynomial(OF(tn_ctx *), OF(const tn_mlp *), OF(const tn_polynomial *), OF(int64_t));
    OF(tn_cp *) = tn_cp_from_modifier(OF(tn_ctx *), OF(const tn_modifier *));
    OF(tn_cp *) = tn_cp_from_quadratic(OF(tn_ctx *), OF(const tn_quadratic *));
    OF(tn_cp *) = tn_cp_from_tensor(OF(tn_ctx *), OF(const tn_tensor *), OF(tn_cp_input));
    OF(tn_cp *) = tn_cp_from_als(OF(tn_ctx *), OF(const tn_cp_als_result *), OF(tn_cp_input));
    OF(tn_cp *) = tn_cp_from_stack(OF(tn_ctx *), OF(const tn_linear *), OF(const tn_mlp *), OF(const tn_linear *));
    OF(tn_status) = tn_mlp_from_cp(OF(tn_params *), OF(const char *), OF(const tn_cp *), OF(tn_mlp *));
    OF(tn_status) = tn_quadratic_from_cp(OF(tn_params *), OF(const char *), OF(const tn_cp *), OF(tn_quadratic *));
    tn_cp_destroy(OF(tn_cp *));
    OF(uint64_t) = tn_cp_mark(OF(const tn_ctx *));
    OF(tn_cp *) = tn_cp_release(OF(tn_ctx *), OF(uint64_t), OF(tn_cp *));
    OF(tn_cp *) = tn_cp_fold_in(OF(const tn_cp *), OF(const tn_tensor *), OF(const tn_tensor *));
    OF(tn_cp *) = tn_cp_fold_slot(OF(const tn_cp *), OF(int), OF(const tn_tensor *), OF(const tn_tensor *));
    OF(tn_cp *) = tn_cp_fold_out(OF(const tn_cp *), OF(const tn_tensor *), OF(const tn_tensor *));
    OF(tn_cp *) = tn_cp_residual(OF(const tn_cp *));
    OF(tn_cp *) = tn_cp_mean(OF(int), OF(const tn_cp * const *), OF(const double *));
    OF(tn_cp *) = tn_cp_compose(OF(const tn_cp *), OF(const tn_cp *));
    OF(tn_cp *) = tn_cp_symmetrise(OF(const tn_cp *));
    OF(tn_status) = tn_cp_split(OF(const tn_cp *), OF(tn_cp **), OF(tn_tensor **), OF(tn_tensor **));
    OF(tn_cp *) = tn_cp_fix(OF(const tn_cp *), OF(int), OF(const tn_tensor *));
    OF(tn_tensor *) = tn_cp_dense(OF(const tn_cp *));
    OF(tn_tensor *) = tn_cp_dense_symmetric(OF(const tn_cp *));
    OF(tn_tensor *) = tn_cp_interaction(OF(const tn_cp *), OF(const tn_tensor *));
    OF(tn_tensor *) = tn_cp_interaction_of(OF(const tn_cp *), OF(int64_t));
    OF(tn_tensor *) = tn_cp_apply(OF(tn_ctx *), OF(const tn_cp *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_cp_apply_each(OF(tn_ctx *), OF(const tn_cp *), OF(tn_tensor * const *));
    OF(tn_status) = tn_cp_eigen(OF(const tn_cp *), OF(const tn_tensor *), OF(int64_t), OF(tn_eigenpairs *));
    OF(tn_status) = tn_cp_eigen_all(OF(const tn_cp *), OF(int64_t), OF(tn_eigenpairs *));
    tn_eigenpairs_destroy(OF(tn_eigenpairs *));
    OF(tn_cp *) = tn_cp_from_eigen(OF(tn_ctx *), OF(const tn_eigenpairs *), OF(int64_t));
    OF(tn_cp *) = tn_cp_truncate(OF(const tn_cp *), OF(int64_t));
    OF(tn_status) = tn_cp_spectrum(OF(const tn_cp *), OF(int64_t), OF(tn_spectrum *));
    tn_spectrum_destroy(OF(tn_spectrum *));
    OF(tn_cp *) = tn_cp_data_metric(OF(const tn_cp *), OF(const tn_tensor *));
    OF(tn_tensor *) = tn_cp_gram(OF(const tn_cp *), OF(const tn_cp *));
    OF(tn_tensor *) = tn_cp_cosines(OF(const tn_cp *), OF(const tn_cp *));
    OF(tn_status) = tn_cp_inner(OF(const tn_cp *), OF(const tn_cp *), OF(double *));
    OF(tn_status) = tn_cp_norm(OF(const tn_cp *), OF(double *));
    OF(tn_status) = tn_cp_cosine(OF(const tn_cp *), OF(const tn_cp *), OF(double *));
    OF(tn_status) = tn_cp_hosvd(OF(const tn_cp *), OF(const tn_cp_hosvd_desc *), OF(tn_cp_hosvd_result *));
    tn_cp_hosvd_destroy(OF(tn_cp_hosvd_result *));
    OF(tn_status) = tn_cp_top(OF(const tn_cp *), OF(int64_t), OF(bool), OF(tn_coefficients *));
    OF(tn_status) = tn_cp_top_inputs(OF(const tn_cp *), OF(int64_t), OF(bool), OF(tn_coefficients *));
    tn_coefficients_destroy(OF(tn_coefficients *));
    OF(tn_tensor *) = tn_cp_gaussian_moment(OF(const tn_cp *), OF(const tn_cp *), OF(const tn_tensor *));
    OF(tn_status) = tn_cp_stack_inner(OF(const tn_cp * const *), OF(const tn_cp * const *), OF(int), OF(const tn_cp_stack_desc
        *), OF(tn_cp_stack_result *));
    OF(tn_status) = tn_cp_signal(OF(const tn_cp *), OF(const tn_signal_desc *), OF(tn_signal *));
    tn_signal_destroy(OF(tn_signal *));
    OF(tn_cp *) = tn_cp_null(OF(const tn_cp *), OF(const tn_signal_desc *), OF(int64_t));
    OF(tn_status) = tn_cp_certify(OF(const tn_cp *), OF(double), OF(double), OF(const tn_tensor *), OF(tn_certificate *));
    tn_certificate_destroy(OF(tn_certificate *));
    OF(tn_status) = tn_cp_radius(OF(int), OF(const tn_cp * const *), OF(const tn_tensor *), OF(tn_radius *));
    tn_radius_destroy(OF(tn_radius *));
    OF(tn_status) = tn_cp_anomaly(OF(const tn_cp *), OF(const tn_cp *), OF(bool), OF(tn_anomaly *));
    tn_anomaly_destroy(OF(tn_anomaly *));
    OF(tn_status) = tn_cp_ball_bound(OF(const tn_cp *), OF(double), OF(tn_ball_bound *));
    tn_ball_bound_destroy(OF(tn_ball_bound *));
    OF(tn_status) = tn_cp_compress(OF(const tn_cp *), OF(const tn_compress_desc *), OF(tn_compression *));
    tn_compression_destroy(OF(tn_compression *));
    OF(tn_tensor *) = tn_cp_feature_interactions(OF(const tn_cp *), OF(const tn_tensor *), OF(const tn_tensor *), OF(const
        tn_tensor *));
    OF(tn_tensor *) = tn_feature_modification(OF(tn_ctx *), OF(tn_tensor *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_feature_basis(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_tensor *), OF(int64_t), OF(bool));
    OF(tn_tensor *) = tn_feature_correlations(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_tensor *));
    OF(tn_tensor *) = tn_mlp_modifier(OF(tn_ctx *), OF(const tn_mlp *), OF(tn_tensor *), OF(tn_tensor **));
    OF(tn_tensor *) = tn_mixed_difference(OF(tn_ctx *), OF(tn_map_fn), OF(const void *), OF(tn_tensor *), OF(int), OF(tn_tensor
        * const *));
    OF(tn_cp *) = tn_cp_canonical(OF(const tn_cp *));
    OF(tn_status) = tn_cp_align(OF(const tn_cp *), OF(const tn_cp *), OF(tn_cp **), OF(tn_tensor **));
    OF(tn_cp *) = tn_cp_refit(OF(const tn_cp *), OF(const tn_cp_refit_desc *), OF(double *));
    OF(tn_net *) = tn_net_create(OF(tn_ctx *), OF(const char *), OF(int), OF(tn_tensor * const *), OF(tn_net_nodes));
    OF(tn_net *) = tn_net_from_cp(OF(tn_ctx *), OF(const tn_cp *));
    OF(tn_net *) = tn_net_from_stack(OF(tn_ctx *), OF(int), OF(const tn_cp * const *), OF(bool));
    OF(tn_net *) = tn_net_from_attention(OF(tn_ctx *), OF(const tn_attention *), OF(int64_t));
    OF(tn_net *) = tn_net_from_cores(OF(tn_ctx *), OF(int), OF(tn_tensor * const *));
    tn_net_destroy(OF(tn_net *));
    OF(tn_net *) = tn_net_compose(OF(const tn_net *), OF(const tn_net *));
    OF(tn_net *) = tn_net_fix(OF(const tn_net *), OF(int), OF(const tn_tensor *));
    OF(tn_net *) = tn_net_fold_in(OF(const tn_net *), OF(int), OF(const tn_tensor *), OF(const tn_tensor *));
    OF(tn_net *) = tn_net_fold_out(OF(const tn_net *), OF(const tn_tensor *));
    OF(tn_tensor *) = tn_net_contract(OF(const tn_net *));
    OF(tn_plan *) = tn_net_plan(OF(const tn_net *), OF(const tn_plan_desc *));
    OF(tn_tensor *) = tn_net_apply(OF(tn_ctx *), OF(const tn_net *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_net_apply_each(OF(tn_ctx *), OF(const tn_net *), OF(tn_tensor * const *));
    OF(tn_status) = tn_net_inner(OF(const tn_net *), OF(const tn_net *), OF(tn_net_form), OF(double *));
    OF(tn_status) = tn_net_norm(OF(const tn_net *), OF(tn_net_form), OF(double *));
    OF(tn_status) = tn_net_cosine(OF(const tn_net *), OF(const tn_net *), OF(tn_net_form), OF(double *));
    OF(tn_status) = tn_net_gaussian(OF(const tn_net *), OF(const tn_net *), OF(const tn_tensor *), OF(const tn_tensor *),
        OF(double *));
    OF(tn_tensor *) = tn_net_interaction(OF(const tn_net *), OF(const tn_tensor *));
    OF(tn_status) = tn_net_eigen(OF(const tn_net *), OF(const tn_tensor *), OF(int64_t), OF(tn_eigenpairs *));
    OF(tn_status) = tn_net_top(OF(const tn_net *), OF(int64_t), OF(tn_coefficients *));
    OF(tn_tensor *) = tn_local_features(OF(tn_ctx *), OF(tn_tensor *), OF(tn_local_map), OF(int64_t));
    OF(tn_status) = tn_mps_init(OF(tn_params *), OF(const char *), OF(const tn_mps_desc *), OF(tn_mps *));
    OF(tn_tensor *) = tn_mps_forward(OF(tn_ctx *), OF(const tn_mps *), OF(tn_tensor *), OF(tn_tensor **));
    OF(tn_tensor *) = tn_mps_log_partition(OF(tn_ctx *), OF(const tn_mps *));
    OF(tn_tensor *) = tn_mps_log_probability(OF(tn_ctx *), OF(const tn_mps *), OF(tn_tensor *));
    OF(tn_tt *) = tn_tt_from_mps(OF(tn_ctx *), OF(const tn_mps *));
    OF(tn_status) = tn_mps_assign_tt(OF(const tn_mps *), OF(const tn_tt *));
    OF(tn_tt *) = tn_tt_random(OF(tn_ctx *), OF(int64_t), OF(const int64_t *), OF(int64_t), OF(uint64_t));
    OF(tn_tt *) = tn_tt_from_cp(OF(tn_ctx *), OF(const tn_cp *), OF(int64_t));
    OF(tn_tt *) = tn_tt_apply(OF(const tn_tt *), OF(const tn_tt *));
    OF(tn_tt *) = tn_tt_swap(OF(const tn_tt *), OF(int64_t), OF(const tn_tt_desc *));
    OF(tn_tt *) = tn_tt_canonical(OF(const tn_tt *), OF(int64_t), OF(double *));
    OF(tn_tensor *) = tn_tt_singular_values(OF(const tn_tt *));
    OF(tn_tensor *) = tn_tt_entropies(OF(const tn_tt *));
    OF(tn_status) = tn_tt_log_norm(OF(const tn_tt *), OF(double *));
    OF(tn_status) = tn_tt_log_inner(OF(const tn_tt *), OF(const tn_tt *), OF(double *), OF(double *));
    OF(tn_status) = tn_tt_conditional(OF(const tn_tt *), OF(int64_t), OF(const int64_t *), OF(double *));
    OF(tn_status) = tn_tt_log_conditionals(OF(const tn_tt *), OF(int64_t), OF(const int64_t *), OF(double *));
    OF(tn_status) = tn_tt_sample(OF(const tn_tt *), OF(int64_t), OF(int64_t), OF(uint64_t), OF(int64_t *));
    OF(tn_tt *) = tn_tt_fit(OF(const tn_tt *), OF(int64_t), OF(const tn_tensor *), OF(const tn_tensor *), OF(const
        tn_tt_fit_desc *), OF(double *));
    OF(tn_status) = tn_tt_linear_init(OF(tn_params *), OF(const char *), OF(const tn_tt_linear_desc *), OF(tn_tt_linear *));
    OF(tn_tensor *) = tn_tt_linear_forward(OF(tn_ctx *), OF(const tn_tt_linear *), OF(tn_tensor *));
    OF(tn_tt *) = tn_tt_from_matrix(OF(tn_ctx *), OF(const tn_tensor *), OF(int64_t), OF(const int64_t *), OF(const int64_t *),
        OF(const tn_tt_desc *));
    OF(tn_tensor *) = tn_tt_matrix(OF(const tn_tt *), OF(const int64_t *), OF(const int64_t *));
    OF(tn_status) = tn_tt_linear_assign_tt(OF(const tn_tt_linear *), OF(const tn_tt *));
    OF(tn_tt *) = tn_tt_from_tt_linear(OF(tn_ctx *), OF(const tn_tt_linear *));
    OF(tn_net *) = tn_net_from_tt(OF(tn_ctx *), OF(const tn_tt *), OF(const int *));
    OF(tn_net *) = tn_net_from_tn_attention(OF(tn_ctx *), OF(const tn_tn_attention *), OF(int64_t), OF(int64_t));
    OF(tn_tt *) = tn_tt_from_attention(OF(tn_ctx *), OF(const tn_attention *), OF(int64_t));
    OF(tn_status) = tn_deep_init(OF(tn_params *), OF(const char *), OF(const tn_deep_desc *), OF(tn_deep *));
    OF(tn_tensor *) = tn_deep_forward(OF(tn_ctx *), OF(const tn_deep *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_deep_state(OF(tn_ctx *), OF(const tn_deep *), OF(int64_t));
    OF(tn_tensor *) = tn_deep_decode(OF(tn_ctx *), OF(const tn_deep *), OF(tn_tensor *), OF(tn_tensor *));
    OF(double) = tn_schedule_at(OF(const tn_schedule *), OF(int64_t));
    OF(tn_optim *) = tn_optim_create(OF(tn_params *), OF(const tn_optim_desc *));
    tn_optim_destroy(OF(tn_optim *));
    OF(tn_status) = tn_optim_step(OF(tn_optim *));
    OF(int64_t) = tn_optim_step_count(OF(const tn_optim *));
    OF(double) = tn_optim_lr(OF(const tn_optim *));
    OF(double) = tn_optim_momentum(OF(const tn_optim *));
    OF(double) = tn_optim_grad_norm(OF(const tn_optim *));
    OF(const char *) = tn_foreign_format(OF(const void *), OF(size_t));
    OF(tn_source) = tn_source_path(OF(const char *));
    OF(tn_sink) = tn_sink_path(OF(const char *));
    OF(tn_source) = tn_source_memory(OF(const void *), OF(size_t));
    OF(tn_source) = tn_source_calls(OF(tn_fetch_fn), OF(void *), OF(uint64_t));
    OF(tn_sink) = tn_sink_memory(OF(void *), OF(size_t), OF(size_t *));
    OF(tn_sink) = tn_sink_calls(OF(tn_store_fn), OF(void *));
    OF(tn_writer *) = tn_writer_open(OF(tn_ctx *), OF(const char *));
    OF(tn_status) = tn_writer_write(OF(tn_writer *), OF(const void *), OF(size_t));
    OF(tn_status) = tn_writer_close(OF(tn_writer *), OF(bool));
    OF(tn_safetensors *) = tn_safetensors_open(OF(tn_ctx *), OF(tn_source));
    tn_safetensors_close(OF(tn_safetensors *));
    OF(int64_t) = tn_safetensors_count(OF(const tn_safetensors *));
    OF(const tn_safetensors_entry *) = tn_safetensors_at(OF(const tn_safetensors *), OF(int64_t));
    OF(const tn_safetensors_entry *) = tn_safetensors_find(OF(const tn_safetensors *), OF(const char *));
    OF(const char *) = tn_safetensors_metadata(OF(const tn_safetensors *), OF(const char *));
    OF(tn_tensor *) = tn_safetensors_read(OF(tn_safetensors *), OF(const char *));
    OF(tn_tensor *) = tn_safetensors_read_flat(OF(tn_safetensors *), OF(const char *));
    OF(tn_status) = tn_safetensors_read_bytes(OF(tn_safetensors *), OF(const char *), OF(void *), OF(size_t));
    OF(bool) = tn_safetensors_equal(OF(tn_safetensors *), OF(const char *), OF(const char *));
    OF(tn_status) = tn_safetensors_write(OF(tn_ctx *), OF(tn_sink), OF(const tn_named_tensor *), OF(int64_t), OF(const
        tn_metadata *), OF(int64_t));
    OF(tn_status) = tn_params_read(OF(tn_params *), OF(tn_source), OF(tn_params_match));
    OF(tn_status) = tn_params_write(OF(const tn_params *), OF(tn_sink), OF(const tn_metadata *), OF(int64_t));
    OF(tn_status) = tn_params_load(OF(tn_params *), OF(const char *));
    OF(tn_status) = tn_params_save(OF(const tn_params *), OF(const char *));
    OF(tn_status) = tn_checkpoint_write(OF(const tn_optim *), OF(tn_sink), OF(const tn_metadata *), OF(int64_t));
    OF(tn_status) = tn_checkpoint_read(OF(tn_optim *), OF(tn_source));
    OF(tn_status) = tn_checkpoint_check(OF(tn_ctx *), OF(tn_source));
    OF(tn_tensor *) = tn_npy_read(OF(tn_ctx *), OF(tn_source));
    OF(tn_tensor *) = tn_npy_read_flat(OF(tn_ctx *), OF(tn_source));
    OF(tn_status) = tn_npy_write(OF(const tn_tensor *), OF(tn_sink));
    OF(tn_tensor *) = tn_npy_load(OF(tn_ctx *), OF(const char *));
    OF(tn_status) = tn_npy_save(OF(const tn_tensor *), OF(const char *));
    OF(tn_tensor *) = tn_idx_read(OF(tn_ctx *), OF(tn_source), OF(double));
    OF(tn_tensor *) = tn_idx_load(OF(tn_ctx *), OF(const char *), OF(double));
    OF(tn_tokenizer *) = tn_tokenizer_create_bytes(OF(tn_ctx *));
    OF(tn_tokenizer *) = tn_tokenizer_create_ascii(OF(tn_ctx *));
    OF(tn_tokenizer *) = tn_tokenizer_read(OF(tn_ctx *), OF(tn_source));
    OF(tn_status) = tn_tokenizer_write(OF(const tn_tokenizer *), OF(tn_sink));
    OF(tn_tokenizer *) = tn_tokenizer_load(OF(tn_ctx *), OF(const char *));
    OF(tn_status) = tn_tokenizer_save(OF(const tn_tokenizer *), OF(const char *));
    tn_tokenizer_destroy(OF(tn_tokenizer *));
    OF(tn_tokenizer *) = tn_tokenizer_train(OF(tn_ctx *), OF(const char *), OF(size_t), OF(int64_t), OF(const
        tn_tokenizer_train_desc *));
    OF(int64_t) = tn_tokenizer_count(OF(const tn_tokenizer *));
    OF(const char *) = tn_tokenizer_token(OF(const tn_tokenizer *), OF(int64_t));
    OF(int64_t) = tn_tokenizer_id(OF(const tn_tokenizer *), OF(const char *));
    OF(int64_t) = tn_tokenizer_bos(OF(const tn_tokenizer *));
    OF(int64_t) = tn_tokenizer_eos(OF(const tn_tokenizer *));
    OF(int64_t) = tn_tokenizer_unk(OF(const tn_tokenizer *));
    OF(bool) = tn_tokenizer_is_bytes(OF(const tn_tokenizer *));
    OF(int64_t) = tn_tokenizer_encode(OF(const tn_tokenizer *), OF(const char *), OF(size_t), OF(tn_bos), OF(int32_t *),
        OF(int64_t), OF(tn_span *));
    OF(int64_t) = tn_tokenizer_decode(OF(const tn_tokenizer *), OF(const int32_t *), OF(int64_t), OF(char *), OF(size_t));
    OF(tn_shard *) = tn_shard_open(OF(tn_ctx *), OF(tn_source), OF(int64_t));
    tn_shard_close(OF(tn_shard *));
    OF(int64_t) = tn_shard_count(OF(const tn_shard *));
    OF(tn_status) = tn_shard_read(OF(const tn_shard *), OF(int64_t), OF(int64_t), OF(int32_t *));
    OF(tn_status) = tn_shard_write(OF(tn_ctx *), OF(tn_sink), OF(const int32_t *), OF(int64_t), OF(int64_t));
    OF(tn_status) = tn_transformer_init(OF(tn_params *), OF(const char *), OF(const tn_transformer_desc *), OF(tn_transformer
        *));
    OF(tn_tensor *) = tn_transformer_forward(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_transformer_hidden(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_transformer_pattern(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(int64_t));
    OF(tn_tensor *) = tn_transformer_unembed(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_transformer_loss(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_status) = tn_transformer_compact(OF(const tn_transformer *), OF(tn_weight_kind), OF(tn_compact_error *));
    OF(tn_tensor *) = tn_transformer_run(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(const tn_tap *),
        OF(int64_t));
    OF(int64_t) = tn_transformer_points(OF(const tn_transformer *), OF(int64_t), OF(int64_t), OF(tn_point *), OF(int64_t));
    OF(tn_tensor *) = tn_tap_read(OF(tn_ctx *), OF(void *), OF(const char *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_tap_edit(OF(tn_ctx *), OF(void *), OF(const char *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_transformer_logit_lens(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *));
    OF(tn_tensor *) = tn_transformer_attribution(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(tn_tensor *),
        OF(tn_tensor *));
    OF(int64_t) = tn_transformer_parts(OF(const tn_transformer *), OF(tn_point *), OF(int64_t));
    OF(tn_transformer_cache *) = tn_transformer_cache_create(OF(tn_ctx *), OF(const tn_transformer *), OF(int64_t),
        OF(int64_t));
    tn_transformer_cache_destroy(OF(tn_transformer_cache *));
    tn_transformer_cache_reset(OF(tn_transformer_cache *));
    OF(int64_t) = tn_transformer_cache_past(OF(const tn_transformer_cache *));
    OF(size_t) = tn_transformer_cache_bytes(OF(const tn_transformer_cache *));
    OF(tn_status) = tn_transformer_cache_rewind(OF(tn_transformer_cache *), OF(int64_t));
    OF(tn_tensor *) = tn_transformer_decode(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(tn_transformer_cache
        *));
    OF(int64_t) = tn_sample(OF(const float *), OF(int64_t), OF(double), OF(int64_t), OF(double), OF(double));
    OF(tn_transformer_cost) = tn_transformer_cost_of(OF(const tn_transformer_desc *), OF(int64_t));
    OF(tn_status) = tn_transformer_check(OF(tn_ctx *), OF(const tn_transformer_desc *), OF(tn_transformer_desc *));
    OF(tn_status) = tn_transformer_config_write(OF(tn_ctx *), OF(const tn_transformer_desc *), OF(tn_sink));
    OF(tn_status) = tn_transformer_config_read(OF(tn_ctx *), OF(tn_source), OF(tn_transformer_desc *));
    OF(const tn_name_map *) = tn_name_map_gpt2(OF(int64_t *));
    OF(const tn_name_map *) = tn_name_map_llama(OF(int64_t *));
    OF(const tn_name_map *) = tn_name_map_bilinear(OF(int64_t *));
    OF(const tn_name_map *) = tn_name_map_gemma(OF(int64_t *));
    OF(const tn_name_map *) = tn_name_map_modded(OF(int64_t *));
    OF(tn_status) = tn_transformer_read_mapped(OF(tn_params *), OF(const tn_transformer *), OF(tn_source), OF(const tn_name_map
        *), OF(int64_t));
    OF(int64_t) = tn_transformer_kv_heads(OF(const tn_transformer *));
    OF(tn_status) = tn_transformer_write_mapped(OF(tn_params *), OF(const tn_transformer *), OF(tn_sink), OF(const tn_name_map
        *), OF(int64_t), OF(int64_t), OF(const tn_metadata *), OF(int64_t));
    OF(tn_circuit *) = tn_circuit_create(OF(tn_ctx *), OF(int), OF(tn_tensor * const *), OF(tn_tensor * const *));
    tn_circuit_destroy(OF(tn_circuit *));
    OF(tn_circuit *) = tn_circuit_qk(OF(tn_ctx *), OF(const tn_transformer *), OF(const tn_circuit_desc *));
    OF(tn_circuit *) = tn_circuit_ov(OF(tn_ctx *), OF(const tn_transformer *), OF(const tn_circuit_desc *));
    OF(tn_circuit *) = tn_circuit_compose(OF(const tn_circuit *), OF(tn_circuit_side), OF(const tn_circuit *));
    OF(tn_tensor *) = tn_circuit_composition(OF(tn_ctx *), OF(const tn_transformer *), OF(int64_t), OF(int64_t),
        OF(tn_head_part));
    OF(tn_status) = tn_circuit_norm(OF(const tn_circuit *), OF(double *));
    OF(tn_status) = tn_circuit_copying(OF(const tn_circuit *), OF(tn_tensor **), OF(double *));
    OF(tn_tensor *) = tn_circuit_rows(OF(tn_ctx *), OF(const tn_circuit *), OF(int64_t), OF(int64_t));
    OF(tn_cp *) = tn_circuit_mlp(OF(tn_ctx *), OF(const tn_transformer *), OF(int64_t));
    OF(tn_net *) = tn_circuit_attention(OF(tn_ctx *), OF(const tn_transformer *), OF(int64_t), OF(int64_t));
    OF(tn_tensor *) = tn_circuit_unembedding(OF(tn_ctx *), OF(const tn_transformer *));
    OF(tn_status) = tn_circuit_block_of(OF(tn_ctx *), OF(const tn_transformer *), OF(const tn_circuit_block_desc *),
        OF(tn_circuit_block *));
    OF(tn_cp *) = tn_circuit_block_term(OF(const tn_circuit_block *), OF(int64_t), OF(int64_t));
    tn_circuit_block_destroy(OF(tn_circuit_block *));
    OF(tn_circuit *) = tn_circuit_bigrams(OF(tn_ctx *), OF(const tn_transformer *), OF(int64_t), OF(int64_t));
    OF(tn_circuit *) = tn_circuit_pairs(OF(tn_ctx *), OF(const tn_transformer *), OF(int64_t), OF(int64_t));
    OF(tn_circuit *) = tn_circuit_interactions(OF(tn_ctx *), OF(const tn_cp *), OF(const tn_tensor *), OF(tn_tensor *),
        OF(tn_tensor *));
    OF(tn_circuit *) = tn_circuit_select(OF(const tn_circuit *), OF(tn_tensor *), OF(tn_tensor *));
    OF(tn_status) = tn_circuit_means(OF(const tn_circuit *), OF(tn_tensor **), OF(tn_tensor **));
    OF(tn_status) = tn_circuit_top(OF(const tn_circuit *), OF(const tn_circuit_top_desc *), OF(tn_circuit_entries *));
    OF(tn_status) = tn_circuit_top_many(OF(const tn_circuit *), OF(int), OF(const tn_circuit_top_desc *), OF(tn_circuit_entries
        *));
    tn_circuit_entries_destroy(OF(tn_circuit_entries *));
    OF(tn_status) = tn_circuit_top_rows(OF(const tn_circuit *), OF(int64_t), OF(tn_order), OF(tn_tensor **), OF(tn_tensor **));
    OF(tn_status) = tn_circuit_maximise(OF(const tn_net *), OF(const tn_tensor *), OF(const tn_circuit_maximum_desc *),
        OF(tn_circuit_maximum *));
    tn_circuit_maximum_destroy(OF(tn_circuit_maximum *));
    OF(tn_circuit_evidence *) = tn_circuit_evidence_create(OF(tn_ctx *), OF(const tn_circuit_evidence_desc *));
    OF(tn_status) = tn_circuit_evidence_add(OF(tn_circuit_evidence *), OF(const tn_tensor *));
    OF(tn_status) = tn_circuit_evidence_read(OF(const tn_circuit_evidence *), OF(tn_circuit_evidence_result *));
    tn_circuit_evidence_result_destroy(OF(tn_circuit_evidence_result *));
    tn_circuit_evidence_destroy(OF(tn_circuit_evidence *));
    OF(tn_status) = tn_circuit_sparsity_of(OF(tn_ctx *), OF(const tn_tensor *), OF(tn_circuit_sparsity *));
    tn_circuit_sparsity_destroy(OF(tn_circuit_sparsity *));
    OF(tn_status) = tn_circuit_freeze(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(tn_circuit_frozen *));
    OF(tn_status) = tn_circuit_frozen_update(OF(tn_circuit_frozen *));
    tn_circuit_frozen_destroy(OF(tn_circuit_frozen *));
    OF(tn_tensor *) = tn_circuit_norm_scales(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *));
    OF(tn_status) = tn_circuit_parts_of(OF(const tn_circuit_frozen *), OF(const tn_circuit_target *), OF(const
        tn_circuit_parts_desc *), OF(tn_circuit_parts *));
    tn_circuit_parts_destroy(OF(tn_circuit_parts *));
    OF(int64_t) = tn_circuit_part_name(OF(const tn_circuit_parts *), OF(int64_t), OF(char *), OF(size_t));
    OF(double) = tn_circuit_path_count(OF(const tn_circuit_frozen *), OF(bool));
    OF(tn_status) = tn_circuit_degrees_of(OF(const tn_circuit_frozen *), OF(const tn_circuit_degrees_desc *),
        OF(tn_circuit_degrees *));
    tn_circuit_degrees_destroy(OF(tn_circuit_degrees *));
    OF(tn_status) = tn_circuit_ratio_of(OF(const tn_circuit_frozen *), OF(const tn_circuit_ratio_desc *), OF(tn_circuit_ratio
        *));
    tn_circuit_ratio_destroy(OF(tn_circuit_ratio *));
    OF(tn_tensor *) = tn_circuit_ratio_logits(OF(const tn_circuit_ratio *), OF(const tn_tensor *), OF(bool), OF(tn_tensor **));
    OF(tn_status) = tn_circuit_ratio_terms(OF(const tn_circuit_ratio *), OF(const tn_circuit_target *), OF(int64_t), OF(const
        tn_tensor *), OF(tn_circuit_terms *));
    tn_circuit_terms_destroy(OF(tn_circuit_terms *));
    OF(int64_t) = tn_circuit_term_name(OF(const tn_circuit_terms *), OF(int64_t), OF(char *), OF(size_t));
    OF(tn_status) = tn_circuit_paths_find(OF(const tn_circuit_frozen *), OF(const tn_circuit_target *), OF(const
        tn_circuit_paths_desc *), OF(tn_circuit_paths *));
    tn_circuit_paths_destroy(OF(tn_circuit_paths *));
    OF(int64_t) = tn_circuit_path_name(OF(const tn_circuit_paths *), OF(int64_t), OF(const char * const *), OF(char *),
        OF(size_t));
    OF(tn_status) = tn_circuit_attribute(OF(const tn_circuit_frozen *), OF(const tn_circuit_target *), OF(tn_circuit_attribution
        *));
    tn_circuit_attribution_destroy(OF(tn_circuit_attribution *));
    OF(tn_status) = tn_circuit_paths_ablate(OF(const tn_circuit_paths *), OF(int64_t), OF(tn_circuit_ablation *));
    tn_circuit_ablation_destroy(OF(tn_circuit_ablation *));
    OF(tn_status) = tn_circuit_bound_of(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(tn_tensor *), OF(const
        tn_tensor *), OF(const tn_circuit_bound_desc *), OF(tn_circuit_bound *));
    tn_circuit_bound_destroy(OF(tn_circuit_bound *));
    OF(tn_circuit *) = tn_circuit_steer(OF(tn_ctx *), OF(const tn_cp *), OF(tn_tensor *), OF(tn_tensor **));
    OF(tn_status) = tn_circuit_steering_of(OF(tn_ctx *), OF(const tn_transformer *), OF(tn_tensor *), OF(const
        tn_circuit_steering_desc *), OF(tn_circuit_steering *));
    tn_circuit_steering_destroy(OF(tn_circuit_steering *));
    OF(tn_status) = tn_circuit_align(OF(tn_ctx *), OF(const tn_transformer *), OF(const tn_transformer *), OF(int64_t),
        OF(bool), OF(tn_circuit_alignment *));
    tn_circuit_alignment_destroy(OF(tn_circuit_alignment *));
    OF(tn_status) = tn_transformer_same(OF(const tn_transformer *), OF(const tn_transformer *), OF(const
        tn_transformer_same_desc *), OF(tn_transformer_same_result *));
    tn_transformer_same_destroy(OF(tn_transformer_same_result *));
    OF(tn_status) = tn_transformer_anomaly(OF(const tn_transformer *), OF(const tn_transformer *), OF(int64_t),
        OF(tn_transformer_anomaly_result *));
    tn_transformer_anomaly_destroy(OF(tn_transformer_anomaly_result *));
    OF(tn_image *) = tn_image_create(OF(tn_ctx *), OF(int64_t), OF(int64_t));
    tn_image_destroy(OF(tn_image *));
    OF(tn_status) = tn_image_write_png(OF(const tn_image *), OF(tn_sink));
    OF(tn_status) = tn_image_write_ppm(OF(const tn_image *), OF(tn_sink));
    OF(tn_status) = tn_image_write_svg(OF(const tn_image *), OF(tn_sink));
    OF(tn_status) = tn_image_save_png(OF(const tn_image *), OF(const char *));
    OF(tn_status) = tn_image_save_ppm(OF(const tn_image *), OF(const char *));
    OF(tn_status) = tn_image_save_svg(OF(const tn_image *), OF(const char *));
    tn_image_colour(OF(tn_image_colours), OF(double), OF(uint8_t *));
    OF(tn_image *) = tn_image_matrix(OF(tn_ctx *), OF(const double *), OF(int64_t), OF(int64_t), OF(const tn_image_matrix_desc
        *));
    OF(tn_image *) = tn_image_matrix_of(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_image_matrix_desc *));
    OF(tn_image *) = tn_image_tiles(OF(tn_ctx *), OF(const double *), OF(int64_t), OF(int64_t), OF(int64_t), OF(const
        tn_image_tiles_desc *));
    OF(tn_image *) = tn_image_tiles_of(OF(tn_ctx *), OF(const tn_tensor *), OF(const tn_image_tiles_desc *));
    OF(tn_image *) = tn_image_plot(OF(tn_ctx *), OF(const tn_image_series *), OF(int64_t), OF(const tn_image_plot_desc *));
}

static void fields(void *at)
{
    { tn_allocator *s = (tn_allocator *)at; (void)s->alloc; (void)s->release; OF(void *) = s->user; }
    { tn_desc *s = (tn_desc *)at; s->backend = OF(const tn_backend *); s->backend_required = OF(bool); s->device = OF(int);
        s->dtype = OF(tn_dtype); s->activations = OF(tn_dtype); s->seed = OF(uint64_t); s->threads = OF(int); s->parallel_for =
        OF(tn_parallel_for_fn); s->parallel_user = OF(void *); s->allocator = OF(tn_allocator); s->log = OF(tn_log_fn);
        s->log_user = OF(void *); s->max_bytes = OF(size_t); s->arena_bytes = OF(size_t); s->simd = OF(tn_simd);
        s->gemm_precision = OF(tn_gemm_precision); }
    { tn_memory *s = (tn_memory *)at; OF(size_t) = s->live; OF(size_t) = s->peak; OF(size_t) = s->arena; OF(uint64_t) =
        s->allocations; }
    { tn_tensor *s = (tn_tensor *)at; OF(tn_ctx *) = s->ctx; OF(tn_dtype) = s->dtype; OF(int) = s->rank; (void)s->shape[0];
        (void)s->strides[0]; OF(void *) = s->data; OF(tn_tensor *) = s->grad; OF(tn_tensor *) = s->base; OF(size_t) = s->bytes;
        }
    { tn_tensor_table_desc *s = (tn_tensor_table_desc *)at; s->row_names = OF(const char * const *); s->column_names = OF(const
        char * const *); s->top = OF(int64_t); s->order = OF(tn_order); s->each_row = OF(bool); s->symmetric = OF(bool);
        s->digits = OF(int); }
    { tn_rope_scaling *s = (tn_rope_scaling *)at; OF(double) = s->factor; OF(double) = s->low; OF(double) = s->high; OF(double)
        = s->context; }
    { tn_rope_desc *s = (tn_rope_desc *)at; s->base = OF(double); s->scaling = OF(tn_rope_scaling); s->first = OF(int64_t);
        s->no_rotation = OF(bool); s->norm = OF(bool); s->eps = OF(double); }
    { tn_attend_desc *s = (tn_attend_desc *)at; s->kind = OF(tn_attend_kind); s->form = OF(tn_attend_form); s->bidirectional =
        OF(bool); s->window = OF(int64_t); s->scale = OF(double); s->row_scale = OF(tn_row_scale); s->row_length = OF(int64_t);
        s->eps = OF(double); s->state = OF(tn_tensor *); s->past = OF(int64_t); }
    { tn_plan_desc *s = (tn_plan_desc *)at; s->minimize = OF(tn_plan_objective); s->max_bytes = OF(size_t); s->samples =
        OF(int); s->seed = OF(uint64_t); s->broadcast = OF(bool); (void)s->clock; }
    { tn_plan_cost *s = (tn_plan_cost *)at; OF(double) = s->naive; OF(double) = s->flops; OF(double) = s->written; OF(double) =
        s->largest; OF(size_t) = s->bytes; OF(int64_t) = s->slices; OF(int64_t) = s->steps; }
    { tn_truncation *s = (tn_truncation *)at; s->rank = OF(int64_t); s->absolute = OF(double); s->relative = OF(double);
        s->weight = OF(double); }
    { tn_eigh_desc *s = (tn_eigh_desc *)at; s->order = OF(tn_eigh_order); s->top = OF(int64_t); s->no_vectors = OF(bool);
        s->measure = OF(bool); s->symmetrise = OF(bool); s->truncation = OF(tn_truncation); s->noise = OF(double); }
    { tn_eigh_result *s = (tn_eigh_result *)at; OF(tn_tensor *) = s->values; OF(tn_tensor *) = s->vectors; OF(tn_tensor *) =
        s->cluster; OF(tn_tensor *) = s->angle; OF(double) = s->error; }
    { tn_qr_desc *s = (tn_qr_desc *)at; s->measure = OF(bool); s->pivot = OF(bool); s->tol = OF(double); }
    { tn_qr_result *s = (tn_qr_result *)at; OF(tn_tensor *) = s->q; OF(tn_tensor *) = s->r; OF(tn_tensor *) = s->order;
        OF(int64_t) = s->rank; OF(double) = s->error; }
    { tn_svd_desc *s = (tn_svd_desc *)at; s->top = OF(int64_t); s->measure = OF(bool); s->truncation = OF(tn_truncation);
        s->noise = OF(double); s->method = OF(tn_svd_method); s->oversample = OF(int64_t); s->power = OF(int64_t); s->seed =
        OF(uint64_t); }
    { tn_svd_result *s = (tn_svd_result *)at; OF(tn_tensor *) = s->u; OF(tn_tensor *) = s->s; OF(tn_tensor *) = s->vt;
        OF(tn_tensor *) = s->cluster; OF(tn_tensor *) = s->angle; OF(double) = s->error; OF(double) = s->residual; }
    { tn_lstsq_desc *s = (tn_lstsq_desc *)at; s->ridge = OF(double); s->tol = OF(double); }
    { tn_lstsq_result *s = (tn_lstsq_result *)at; OF(tn_tensor *) = s->x; OF(tn_tensor *) = s->residual; OF(int64_t) = s->rank;
        }
    { tn_polynomial *s = (tn_polynomial *)at; OF(int) = s->degree; OF(double) = s->centre; OF(double) = s->width; (void)s->c[0];
        OF(double) = s->rms; OF(double) = s->share; }
    { tn_polynomial_fit *s = (tn_polynomial_fit *)at; OF(tn_ctx *) = s->ctx; OF(int) = s->degree; OF(double) = s->low;
        OF(double) = s->high; OF(int64_t) = s->samples; (void)s->r[0]; }
    { tn_eig_desc *s = (tn_eig_desc *)at; s->no_vectors = OF(bool); s->left = OF(bool); s->measure = OF(bool); }
    { tn_eig_result *s = (tn_eig_result *)at; OF(tn_tensor *) = s->values; OF(tn_tensor *) = s->right; OF(tn_tensor *) =
        s->left; OF(tn_tensor *) = s->condition; OF(double) = s->residual; }
    { tn_lanczos_desc *s = (tn_lanczos_desc *)at; s->which = OF(tn_lanczos_which); s->top = OF(int64_t); s->tol = OF(double);
        s->block = OF(int64_t); s->basis = OF(int64_t); s->products = OF(int64_t); s->seed = OF(uint64_t); s->measure =
        OF(bool); }
    { tn_lanczos_result *s = (tn_lanczos_result *)at; OF(tn_tensor *) = s->values; OF(tn_tensor *) = s->vectors; OF(double) =
        s->residual; OF(int64_t) = s->products; }
    { tn_tt *s = (tn_tt *)at; OF(tn_ctx *) = s->ctx; OF(int64_t) = s->count; OF(tn_tensor **) = s->core; OF(double) = s->error;
        OF(double) = s->discarded; OF(double) = s->gap; }
    { tn_tt_desc *s = (tn_tt_desc *)at; s->eps = OF(double); s->max_bond = OF(int64_t); s->relative = OF(double); }
    { tn_hosvd_desc *s = (tn_hosvd_desc *)at; s->eps = OF(double); (void)s->axis[0]; s->sweeps = OF(int64_t); s->tol =
        OF(double); }
    { tn_hosvd_result *s = (tn_hosvd_result *)at; OF(int) = s->rank; OF(tn_tensor *) = s->core; (void)s->factor[0];
        (void)s->values[0]; (void)s->gap[0]; OF(double) = s->error; OF(double) = s->bound; OF(int64_t) = s->sweeps; OF(bool) =
        s->converged; }
    { tn_cp_als_desc *s = (tn_cp_als_desc *)at; s->terms = OF(int64_t); s->ridge = OF(double); s->sweeps = OF(int64_t); s->tol =
        OF(double); s->starts = OF(int64_t); s->random = OF(bool); s->seed = OF(uint64_t); }
    { tn_cp_als_result *s = (tn_cp_als_result *)at; OF(int) = s->rank; OF(tn_tensor *) = s->weights; (void)s->factor[0];
        OF(double) = s->error; OF(double) = s->objective; OF(int64_t) = s->sweeps; OF(int64_t) = s->start; OF(bool) =
        s->converged; OF(double) = s->congruence; OF(double) = s->cancellation; OF(bool) = s->degenerate; }
    { tn_joint_eigh_desc *s = (tn_joint_eigh_desc *)at; s->sweeps = OF(int64_t); s->tol = OF(double); s->compare = OF(bool); }
    { tn_joint_eigh_result *s = (tn_joint_eigh_result *)at; OF(tn_tensor *) = s->vectors; OF(tn_tensor *) = s->values;
        OF(tn_tensor *) = s->off; OF(tn_tensor *) = s->gap; OF(tn_tensor *) = s->shared; OF(tn_tensor *) = s->separate;
        OF(double) = s->error; OF(int64_t) = s->sweeps; OF(bool) = s->converged; }
    { tn_ica_desc *s = (tn_ica_desc *)at; s->components = OF(int64_t); s->sweeps = OF(int64_t); s->tol = OF(double); s->seed =
        OF(uint64_t); s->start = OF(const tn_tensor *); }
    { tn_ica_result *s = (tn_ica_result *)at; OF(tn_tensor *) = s->components; OF(tn_tensor *) = s->mixing; OF(tn_tensor *) =
        s->whitening; OF(tn_tensor *) = s->mean; OF(tn_tensor *) = s->contrast; OF(int64_t) = s->gaussian; OF(double) =
        s->change; OF(int64_t) = s->sweeps; OF(bool) = s->converged; }
    { tn_param *s = (tn_param *)at; OF(const char *) = s->name; OF(tn_tensor *) = s->value; OF(bool) = s->frozen; OF(double) =
        s->lr_scale; OF(double) = s->decay_scale; OF(bool) = s->adamw; }
    { tn_init *s = (tn_init *)at; s->rule = OF(tn_init_rule); s->std = OF(double); s->fan_in = OF(int64_t); s->fan_out =
        OF(int64_t); }
    { tn_compact_error *s = (tn_compact_error *)at; OF(double) = s->largest; OF(double) = s->rms; OF(int64_t) = s->count;
        OF(size_t) = s->bytes; (void)s->worst[0]; }
    { tn_linear_desc *s = (tn_linear_desc *)at; s->in = OF(int64_t); s->out = OF(int64_t); s->bias = OF(bool); s->augmented =
        OF(bool); s->init = OF(tn_init); }
    { tn_linear *s = (tn_linear *)at; OF(tn_linear_desc) = s->desc; OF(tn_tensor *) = s->w; OF(tn_tensor *) = s->b; }
    { tn_embedding_desc *s = (tn_embedding_desc *)at; s->count = OF(int64_t); s->dim = OF(int64_t); s->init = OF(tn_init); }
    { tn_embedding *s = (tn_embedding *)at; OF(tn_embedding_desc) = s->desc; OF(tn_tensor *) = s->w; }
    { tn_norm_desc *s = (tn_norm_desc *)at; s->dim = OF(int64_t); s->no_gain = OF(bool); s->eps = OF(double); s->kind =
        OF(tn_norm_kind); s->bias = OF(bool); }
    { tn_norm *s = (tn_norm *)at; OF(tn_norm_desc) = s->desc; OF(tn_tensor *) = s->gain; OF(tn_tensor *) = s->bias; }
    { tn_mlp_desc *s = (tn_mlp_desc *)at; s->in = OF(int64_t); s->hidden = OF(int64_t); s->out = OF(int64_t); s->kind =
        OF(tn_mlp_kind); s->order = OF(int64_t); s->bias = OF(bool); s->out_bias = OF(bool); s->no_projection = OF(bool);
        s->residual = OF(bool); s->augmented = OF(bool); s->init = OF(tn_init); s->init_out = OF(tn_init); }
    { tn_mlp *s = (tn_mlp *)at; OF(tn_mlp_desc) = s->desc; OF(tn_tensor *) = s->w; OF(tn_tensor *) = s->b; OF(tn_tensor *) =
        s->p; OF(tn_tensor *) = s->pb; }
    { tn_quadratic_desc *s = (tn_quadratic_desc *)at; s->in = OF(int64_t); s->out = OF(int64_t); s->bias = OF(bool);
        s->augmented = OF(bool); s->init = OF(tn_init); }
    { tn_quadratic *s = (tn_quadratic *)at; OF(tn_quadratic_desc) = s->desc; OF(tn_tensor *) = s->t; }
    { tn_modifier_desc *s = (tn_modifier_desc *)at; s->in = OF(int64_t); s->hidden = OF(int64_t); s->out = OF(int64_t); s->rank
        = OF(int64_t); s->step = OF(double); s->penalty = OF(tn_penalty); s->bias = OF(bool); s->out_bias = OF(bool);
        s->no_projection = OF(bool); s->init = OF(tn_init); s->init_w = OF(tn_init); s->init_out = OF(tn_init); }
    { tn_modifier *s = (tn_modifier *)at; OF(tn_modifier_desc) = s->desc; OF(tn_tensor *) = s->w; OF(tn_tensor *) = s->wa;
        OF(tn_tensor *) = s->wb; OF(tn_tensor *) = s->v; OF(tn_tensor *) = s->c; OF(tn_tensor *) = s->p; OF(tn_tensor *) =
        s->pb; }
    { tn_attention_desc *s = (tn_attention_desc *)at; s->dim = OF(int64_t); s->heads = OF(int64_t); s->out = OF(int64_t);
        s->d_qk = OF(int64_t); s->d_v = OF(int64_t); s->kind = OF(tn_attention_kind); s->form = OF(tn_attend_form);
        s->bidirectional = OF(bool); s->window = OF(int64_t); s->row_scale = OF(tn_row_scale); s->row_length = OF(int64_t);
        s->scale = OF(double); s->no_rope = OF(bool); s->rope_base = OF(double); s->rope_scaling = OF(tn_rope_scaling);
        s->qk_norm = OF(bool); s->qk_norm_eps = OF(double); s->qk_gain = OF(bool); s->head_norm = OF(bool); s->lambda_init =
        OF(double); s->depth = OF(int64_t); s->bias = OF(bool); s->out_bias = OF(bool); s->mix_values = OF(bool); s->init =
        OF(tn_init); s->init_out = OF(tn_init); }
    { tn_attention *s = (tn_attention *)at; OF(tn_attention_desc) = s->desc; OF(tn_tensor *) = s->qk; OF(tn_tensor *) = s->v;
        OF(tn_tensor *) = s->o; OF(tn_tensor *) = s->qkb; OF(tn_tensor *) = s->vb; OF(tn_tensor *) = s->ob; OF(tn_tensor *) =
        s->lambda; OF(tn_tensor *) = s->mix; OF(tn_tensor *) = s->qk_gain; }
    { tn_tn_attention_desc *s = (tn_tn_attention_desc *)at; s->in = OF(int64_t); s->bond = OF(int64_t); s->out = OF(int64_t);
        s->sites = OF(int64_t); s->square = OF(bool); s->boundary = OF(tn_boundary); s->causal = OF(bool); s->unit_inputs =
        OF(bool); s->unit_weights = OF(bool); s->scale = OF(double); s->act = OF(tn_act); s->leak = OF(double); s->bias =
        OF(bool); s->residual = OF(bool); s->norm = OF(tn_row_norm); s->eps = OF(double); s->init_a = OF(tn_init); s->init_b =
        OF(tn_init); }
    { tn_tn_attention *s = (tn_tn_attention *)at; OF(tn_tn_attention_desc) = s->desc; OF(tn_tensor *) = s->a; OF(tn_tensor *) =
        s->b; OF(tn_tensor *) = s->left; OF(tn_tensor *) = s->right; OF(tn_tensor *) = s->r; OF(tn_tensor *) = s->bias; }
    { tn_rule_reading *s = (tn_rule_reading *)at; OF(int) = s->rule; OF(double) = s->agree; OF(double) = s->margin; OF(double) =
        s->distance; (void)s->mean[0]; }
    { tn_cp *s = (tn_cp *)at; OF(tn_ctx *) = s->ctx; OF(int) = s->order; OF(int64_t) = s->out; OF(int64_t) = s->terms;
        (void)s->in[0]; OF(bool) = s->constant; OF(tn_tensor *) = s->p; (void)s->f[0]; }
    { tn_eigenpairs *s = (tn_eigenpairs *)at; OF(int64_t) = s->outputs; OF(int64_t) = s->count; OF(int64_t) = s->n; OF(tn_tensor
        *) = s->values; OF(tn_tensor *) = s->vectors; OF(bool) = s->constant; }
    { tn_spectrum *s = (tn_spectrum *)at; OF(int64_t) = s->outputs; OF(int64_t) = s->count; OF(tn_tensor *) = s->values;
        OF(tn_tensor *) = s->norm; OF(tn_tensor *) = s->rank_low; OF(tn_tensor *) = s->rank_high; }
    { tn_cp_hosvd_desc *s = (tn_cp_hosvd_desc *)at; s->rank_out = OF(int64_t); s->rank_in = OF(int64_t); s->unsymmetrised =
        OF(bool); s->accurate = OF(bool); s->core = OF(bool); }
    { tn_cp_hosvd_result *s = (tn_cp_hosvd_result *)at; OF(tn_tensor *) = s->out_values; OF(tn_tensor *) = s->out_vectors;
        (void)s->in_values[0]; (void)s->in_vectors[0]; OF(tn_tensor *) = s->core; OF(double) = s->norm; OF(double) = s->error; }
    { tn_coefficients *s = (tn_coefficients *)at; OF(int64_t) = s->count; OF(tn_tensor *) = s->values; OF(tn_tensor *) =
        s->index; OF(double) = s->visited; }
    { tn_cp_stack_desc *s = (tn_cp_stack_desc *)at; s->method = OF(tn_cp_stack_method); s->samples = OF(int64_t); s->seed =
        OF(uint64_t); s->gaussian = OF(bool); }
    { tn_cp_stack_result *s = (tn_cp_stack_result *)at; OF(tn_cp_stack_method) = s->method; OF(double) = s->inner; OF(double) =
        s->norm_a; OF(double) = s->norm_b; OF(double) = s->cosine; OF(double) = s->inner_error; OF(double) = s->cosine_error;
        OF(int64_t) = s->samples; }
    { tn_signal_desc *s = (tn_signal_desc *)at; s->null = OF(tn_null_model); s->nulls = OF(const tn_cp * const *); s->scaled =
        OF(bool); s->draws = OF(int64_t); s->count = OF(int64_t); s->seed = OF(uint64_t); }
    { tn_signal *s = (tn_signal *)at; OF(int64_t) = s->outputs; OF(int64_t) = s->count; OF(tn_tensor *) = s->values;
        OF(tn_tensor *) = s->null_values; OF(tn_tensor *) = s->edge; OF(tn_tensor *) = s->signal; }
    { tn_certificate *s = (tn_certificate *)at; OF(tn_cp *) = s->cp; OF(tn_tensor *) = s->rank; OF(tn_tensor *) = s->error;
        OF(tn_tensor *) = s->bound; OF(tn_tensor *) = s->mean; }
    { tn_radius *s = (tn_radius *)at; OF(tn_tensor *) = s->radius; OF(tn_tensor *) = s->answer; OF(tn_tensor *) = s->rival;
        OF(tn_tensor *) = s->nearest; }
    { tn_anomaly *s = (tn_anomaly *)at; OF(double) = s->score; OF(int64_t) = s->output; OF(int64_t) = s->input; OF(double) =
        s->concentration; OF(int64_t) = s->raised; OF(tn_tensor *) = s->rows; OF(tn_tensor *) = s->share; OF(tn_tensor *) =
        s->values; OF(tn_tensor *) = s->vectors; }
    { tn_ball_bound *s = (tn_ball_bound *)at; OF(double) = s->bound; OF(double) = s->reached; OF(tn_tensor *) = s->input; }
    { tn_compress_desc *s = (tn_compress_desc *)at; s->radius = OF(double); s->bound = OF(double); s->terms = OF(int64_t);
        s->single = OF(bool); s->plain = OF(bool); }
    { tn_compression *s = (tn_compression *)at; OF(tn_cp *) = s->cp; OF(tn_tensor *) = s->kept; OF(int64_t) = s->exact;
        OF(tn_ball_bound) = s->change; }
    { tn_cp_refit_desc *s = (tn_cp_refit_desc *)at; s->terms = OF(int64_t); s->sweeps = OF(int64_t); s->tol = OF(double);
        s->sparsity = OF(double); s->starts = OF(int64_t); s->seed = OF(uint64_t); s->inputs = OF(const tn_tensor *); s->moment
        = OF(const tn_tensor *); }
    { tn_net_node *s = (tn_net_node *)at; OF(tn_tensor *) = s->tensor; (void)s->label[0]; }
    { tn_net_leg *s = (tn_net_leg *)at; OF(int) = s->label; OF(int) = s->input; OF(int64_t) = s->extent; }
    { tn_net *s = (tn_net *)at; OF(tn_ctx *) = s->ctx; OF(int) = s->nodes; OF(int) = s->outs; OF(int) = s->legs; OF(int) =
        s->labels; OF(bool) = s->constant; OF(tn_net_node *) = s->node; OF(tn_net_leg *) = s->out; OF(tn_net_leg *) = s->in; }
    { tn_mps_desc *s = (tn_mps_desc *)at; s->sites = OF(int64_t); s->bond = OF(int64_t); s->out = OF(int64_t); s->label =
        OF(int64_t); s->map = OF(tn_local_map); s->dim = OF(int64_t); s->periodic = OF(bool); s->uniform = OF(bool); s->random =
        OF(bool); s->std = OF(double); }
    { tn_mps *s = (tn_mps *)at; OF(tn_mps_desc) = s->desc; OF(tn_tensor *) = s->cores; OF(tn_tensor *) = s->label; OF(tn_tensor
        *) = s->left; OF(tn_tensor *) = s->right; }
    { tn_tt_fit_desc *s = (tn_tt_fit_desc *)at; s->sweeps = OF(int64_t); s->max_bond = OF(int64_t); s->relative = OF(double);
        s->ridge = OF(double); s->steps = OF(int64_t); }
    { tn_tt_linear_desc *s = (tn_tt_linear_desc *)at; s->count = OF(int64_t); (void)s->in[0]; (void)s->out[0]; s->bond =
        OF(int64_t); s->bias = OF(bool); s->std = OF(double); }
    { tn_tt_linear *s = (tn_tt_linear *)at; OF(tn_tt_linear_desc) = s->desc; (void)s->core[0]; OF(tn_tensor *) = s->b; }
    { tn_deep_desc *s = (tn_deep_desc *)at; s->out = OF(int64_t); s->layers = OF(int64_t); s->bond = OF(int64_t); s->dim =
        OF(int64_t); s->map = OF(tn_local_map); s->vocab = OF(int64_t); s->boundary = OF(tn_boundary); s->causal = OF(bool);
        s->square = OF(bool); s->no_residual = OF(bool); s->no_norm = OF(bool); s->act = OF(tn_act); s->head = OF(tn_deep_head);
        s->sites = OF(int64_t); s->head_bond = OF(int64_t); }
    { tn_deep *s = (tn_deep *)at; OF(tn_deep_desc) = s->desc; OF(tn_embedding) = s->embed; OF(tn_tn_attention *) = s->layer;
        OF(tn_mps) = s->mps; OF(tn_linear) = s->linear; }
    { tn_schedule *s = (tn_schedule *)at; s->kind = OF(tn_schedule_kind); s->warmup = OF(int64_t); s->total = OF(int64_t);
        s->floor = OF(double); s->decay = OF(int64_t); s->one_minus_sqrt = OF(bool); }
    { tn_optim_desc *s = (tn_optim_desc *)at; s->kind = OF(tn_optim_kind); s->lr = OF(double); s->beta1 = OF(double); s->beta2 =
        OF(double); s->eps = OF(double); s->weight_decay = OF(double); s->momentum = OF(double); s->nesterov = OF(bool);
        s->clip_norm = OF(double); s->schedule = OF(tn_schedule); s->adam_lr = OF(double); s->muon_scale = OF(tn_muon_scale);
        s->newton_schulz = OF(int); s->momentum_warmup = OF(int64_t); s->momentum_start = OF(double); s->share_moments =
        OF(bool); s->bucket = OF(int64_t); }
    { tn_source *s = (tn_source *)at; s->path = OF(const char *); s->data = OF(const void *); s->bytes = OF(uint64_t); s->fetch
        = OF(tn_fetch_fn); s->user = OF(void *); s->name = OF(const char *); }
    { tn_sink *s = (tn_sink *)at; s->path = OF(const char *); s->data = OF(void *); s->bytes = OF(size_t); s->used = OF(size_t
        *); s->store = OF(tn_store_fn); s->user = OF(void *); s->name = OF(const char *); s->no_sync = OF(bool); }
    { tn_safetensors_entry *s = (tn_safetensors_entry *)at; OF(const char *) = s->name; OF(const char *) = s->dtype; OF(int) =
        s->rank; (void)s->shape[0]; OF(uint64_t) = s->offset; OF(uint64_t) = s->bytes; OF(int64_t) = s->part; OF(int64_t) =
        s->axes; }
    { tn_named_tensor *s = (tn_named_tensor *)at; OF(const char *) = s->name; OF(const tn_tensor *) = s->tensor; }
    { tn_metadata *s = (tn_metadata *)at; OF(const char *) = s->key; OF(const char *) = s->value; }
    { tn_tokenizer_train_desc *s = (tn_tokenizer_train_desc *)at; s->min_count = OF(int64_t); s->letters = OF(int64_t);
        s->separator = OF(const char *); }
    { tn_span *s = (tn_span *)at; OF(size_t) = s->begin; OF(size_t) = s->end; }
    { tn_transformer_desc *s = (tn_transformer_desc *)at; s->vocab = OF(int64_t); s->layers = OF(int64_t); s->dim = OF(int64_t);
        s->heads = OF(int64_t); s->context = OF(int64_t); s->mlp = OF(tn_mlp_kind); s->mlp_order = OF(int64_t); s->hidden =
        OF(int64_t); s->mlp_bias = OF(bool); s->mlp_out_bias = OF(bool); s->no_projection = OF(bool); s->attention =
        OF(tn_attention_kind); s->form = OF(tn_attend_form); s->d_qk = OF(int64_t); s->d_v = OF(int64_t); s->window =
        OF(int64_t); s->bidirectional = OF(bool); s->qk_norm = OF(bool); s->head_norm = OF(bool); s->qk_gain = OF(bool);
        s->qk_norm_eps = OF(double); s->row_scale = OF(tn_row_scale); s->row_length = OF(int64_t); s->score_scale = OF(double);
        s->lambda_init = OF(double); s->attn_bias = OF(bool); s->attn_out_bias = OF(bool); s->attention_count = OF(int64_t);
        s->window_count = OF(int64_t); s->mlp_count = OF(int64_t); (void)s->attention_cycle[0]; (void)s->window_cycle[0];
        (void)s->mlp_cycle[0]; s->positions = OF(tn_positions); s->rope_base = OF(double); s->rope_scaling =
        OF(tn_rope_scaling); s->norm = OF(tn_norm_kind); s->norm_place = OF(tn_place); s->no_norm = OF(bool); s->no_norm_gain =
        OF(bool); s->norm_bias = OF(bool); s->embed_norm = OF(bool); s->norm_eps = OF(double); s->attn_scale = OF(double);
        s->mlp_scale = OF(double); s->x0_residual = OF(bool); s->value_residual = OF(bool); s->tied = OF(bool); s->softcap =
        OF(double); s->init = OF(tn_init_rule); s->init_std = OF(double); s->embed_std = OF(double); s->zero_out = OF(bool);
        s->zero_head = OF(bool); s->embed_noise = OF(double); s->dropout = OF(double); s->recompute = OF(bool); }
    { tn_transformer_block *s = (tn_transformer_block *)at; OF(tn_norm) = s->norm1; OF(tn_norm) = s->norm2; OF(tn_norm) =
        s->norm1_out; OF(tn_norm) = s->norm2_out; OF(tn_attention) = s->attn; OF(tn_mlp) = s->mlp; OF(tn_tensor *) = s->lambdas;
        }
    { tn_transformer *s = (tn_transformer *)at; OF(tn_transformer_desc) = s->desc; OF(tn_embedding) = s->embed; OF(tn_tensor *)
        = s->position; OF(tn_norm) = s->embed_norm; OF(tn_norm) = s->norm; OF(tn_linear) = s->head; OF(tn_transformer_block *) =
        s->blocks; }
    { tn_tap *s = (tn_tap *)at; s->points = OF(const char *); s->fn = OF(tn_tap_fn); s->user = OF(void *); }
    { tn_point *s = (tn_point *)at; (void)s->name[0]; OF(int) = s->rank; (void)s->shape[0]; }
    { tn_edit *s = (tn_edit *)at; s->head = OF(int64_t); s->heads = OF(int64_t); s->token = OF(int64_t); s->tokens =
        OF(int64_t); s->keep = OF(double); s->mean = OF(bool); s->value = OF(tn_tensor *); }
    { tn_transformer_cost *s = (tn_transformer_cost *)at; OF(int64_t) = s->params; OF(int64_t) = s->table; OF(double) =
        s->weights; OF(double) = s->scores; OF(double) = s->forward; OF(double) = s->training; }
    { tn_name_map *s = (tn_name_map *)at; OF(const char *) = s->file; OF(const char *) = s->param; OF(bool) = s->transpose;
        OF(int) = s->file_part; OF(int) = s->file_parts; OF(int) = s->part; OF(int) = s->parts; OF(bool) = s->kv;
        OF(tn_head_rows) = s->rows; OF(double) = s->scale; OF(double) = s->offset; OF(bool) = s->root_dim; OF(bool) = s->spare;
        }
    { tn_circuit *s = (tn_circuit *)at; OF(tn_ctx *) = s->ctx; OF(int) = s->sets; OF(int64_t) = s->rows; OF(int64_t) =
        s->columns; (void)s->left[0]; (void)s->right[0]; }
    { tn_circuit_desc *s = (tn_circuit_desc *)at; s->block = OF(int64_t); s->head = OF(int64_t); s->tokens = OF(bool); s->set =
        OF(int); s->query = OF(int64_t); s->key = OF(int64_t); s->norm_scale = OF(double); }
    { tn_circuit_block_desc *s = (tn_circuit_block_desc *)at; s->block = OF(int64_t); s->norm1_scale = OF(double);
        s->norm2_scale = OF(double); s->compact = OF(bool); }
    { tn_circuit_block *s = (tn_circuit_block *)at; OF(int64_t) = s->heads; OF(tn_cp *) = s->b; OF(tn_cp *) = s->doubled;
        OF(tn_tensor *) = s->m; OF(tn_tensor *) = s->v; OF(tn_tensor *) = s->compact; }
    { tn_circuit_top_desc *s = (tn_circuit_top_desc *)at; s->top = OF(int64_t); s->order = OF(tn_order); s->pairs = OF(bool); }
    { tn_circuit_entries *s = (tn_circuit_entries *)at; OF(int64_t) = s->count; OF(tn_tensor *) = s->values; OF(tn_tensor *) =
        s->index; OF(tn_tensor *) = s->share; OF(double) = s->norm; }
    { tn_circuit_maximum_desc *s = (tn_circuit_maximum_desc *)at; s->starts = OF(int64_t); s->steps = OF(int64_t); s->radius =
        OF(double); s->tol = OF(double); s->seed = OF(uint64_t); s->minimum = OF(bool); }
    { tn_circuit_maximum *s = (tn_circuit_maximum *)at; OF(double) = s->value; OF(tn_tensor *) = s->x; OF(int64_t) = s->agree;
        OF(bool) = s->converged; }
    { tn_circuit_evidence_desc *s = (tn_circuit_evidence_desc *)at; s->features = OF(int64_t); s->top = OF(int64_t); s->order =
        OF(tn_order); s->bins = OF(int64_t); s->low = OF(double); s->high = OF(double); s->seed = OF(uint64_t); }
    { tn_circuit_evidence_result *s = (tn_circuit_evidence_result *)at; OF(int64_t) = s->rows; OF(int64_t) = s->top; OF(int64_t)
        = s->random; OF(tn_tensor *) = s->values; OF(tn_tensor *) = s->index; OF(tn_tensor *) = s->random_values; OF(tn_tensor
        *) = s->random_index; OF(tn_tensor *) = s->histogram; OF(tn_tensor *) = s->mean; OF(tn_tensor *) = s->std; OF(tn_tensor
        *) = s->kurtosis; }
    { tn_circuit_sparsity *s = (tn_circuit_sparsity *)at; OF(tn_tensor *) = s->kurtosis; OF(tn_tensor *) = s->participation;
        OF(tn_tensor *) = s->deviations; OF(double) = s->expected; OF(double) = s->std; }
    { tn_circuit_frozen_block *s = (tn_circuit_frozen_block *)at; OF(tn_tensor *) = s->pattern; OF(tn_tensor *) =
        s->norm1_scale; OF(tn_tensor *) = s->norm2_scale; OF(tn_tensor *) = s->v; OF(tn_tensor *) = s->o; OF(tn_tensor *) =
        s->ob; OF(tn_tensor *) = s->qk; OF(tn_tensor *) = s->mask; OF(tn_tensor *) = s->w; OF(tn_tensor *) = s->m; OF(tn_tensor
        *) = s->p; OF(tn_tensor *) = s->pb; OF(double) = s->keep; OF(double) = s->again; OF(tn_tensor *) = s->run1; OF(tn_tensor
        *) = s->run2; OF(tn_tensor *) = s->x1; OF(tn_tensor *) = s->x2; OF(tn_tensor *) = s->values; OF(tn_tensor *) = s->gate;
        OF(tn_tensor *) = s->added; }
    { tn_circuit_frozen *s = (tn_circuit_frozen *)at; OF(tn_ctx *) = s->ctx; OF(const tn_transformer *) = s->model; OF(int64_t)
        = s->layers; OF(int64_t) = s->tokens; OF(int) = s->sources; OF(bool) = s->positions; OF(bool) = s->constant; OF(int32_t
        *) = s->id; OF(tn_tensor *) = s->source; OF(tn_circuit_frozen_block *) = s->block; OF(tn_tensor *) = s->norm_scale;
        OF(tn_tensor *) = s->u; OF(tn_tensor *) = s->cap; OF(tn_tensor *) = s->run; OF(tn_tensor *) = s->x; OF(tn_tensor *) =
        s->logits; OF(double) = s->error; }
    { tn_circuit_target *s = (tn_circuit_target *)at; OF(tn_circuit_aim) = s->aim; OF(int64_t) = s->position; OF(int64_t) =
        s->token; OF(int64_t) = s->other; }
    { tn_circuit_parts_desc *s = (tn_circuit_parts_desc *)at; s->by = OF(tn_circuit_by); s->patterns = OF(bool); s->max_parts =
        OF(int64_t); }
    { tn_circuit_parts *s = (tn_circuit_parts *)at; OF(tn_circuit_by) = s->by; OF(bool) = s->patterns; OF(int64_t) = s->count;
        OF(const tn_circuit_frozen *) = s->frozen; OF(tn_tensor *) = s->values; OF(double) = s->whole; OF(double) = s->error; }
    { tn_circuit_degrees_desc *s = (tn_circuit_degrees_desc *)at; s->max_degree = OF(int64_t); s->hold_patterns = OF(bool); }
    { tn_circuit_degrees *s = (tn_circuit_degrees *)at; OF(int64_t) = s->count; OF(double) = s->highest; OF(tn_tensor *) =
        s->logits; OF(double) = s->rest; OF(const char *) = s->held; }
    { tn_circuit_polynomial *s = (tn_circuit_polynomial *)at; OF(tn_ctx *) = s->ctx; OF(int64_t) = s->symbols; OF(int64_t) =
        s->width; OF(int64_t) = s->count; OF(uint16_t *) = s->power; OF(double *) = s->value; OF(int64_t) = s->room; OF(int64_t
        *) = s->slot; }
    { tn_circuit_ratio_desc *s = (tn_circuit_ratio_desc *)at; s->directions = OF(const tn_tensor *); s->base = OF(const
        tn_tensor *); s->max_bytes = OF(size_t); s->size_only = OF(bool); }
    { tn_circuit_ratio *s = (tn_circuit_ratio *)at; OF(const tn_circuit_frozen *) = s->frozen; OF(int64_t) = s->variables;
        OF(int64_t) = s->symbols; OF(bool) = s->moved; OF(size_t) = s->max_bytes; OF(double) = s->degree; OF(double) =
        s->terms_bound; OF(double) = s->bytes_bound; OF(int64_t *) = s->count; OF(tn_circuit_polynomial *) = s->x; }
    { tn_circuit_terms *s = (tn_circuit_terms *)at; OF(const tn_circuit_ratio *) = s->ratio; OF(tn_circuit_polynomial) =
        s->list; OF(double) = s->whole; }
    { tn_circuit_node *s = (tn_circuit_node *)at; OF(double) = s->value; OF(int64_t) = s->next; OF(int64_t) = s->position;
        OF(int32_t) = s->block; OF(int32_t) = s->head; }
    { tn_circuit_paths_desc *s = (tn_circuit_paths_desc *)at; s->budget = OF(int64_t); s->least = OF(double); }
    { tn_circuit_paths *s = (tn_circuit_paths *)at; OF(const tn_circuit_frozen *) = s->frozen; OF(tn_circuit_target) =
        s->target; OF(int64_t) = s->nodes; OF(int64_t) = s->max_nodes; OF(int64_t) = s->expanded; OF(tn_circuit_node *) =
        s->node; OF(int64_t) = s->count; OF(int64_t) = s->open; OF(int64_t *) = s->path; OF(int64_t *) = s->frontier; OF(double)
        = s->all; OF(double) = s->found; OF(double) = s->rest; OF(double) = s->whole; OF(double) = s->error; }
    { tn_circuit_attribution *s = (tn_circuit_attribution *)at; OF(tn_tensor *) = s->values; OF(double) = s->whole; OF(double) =
        s->error; }
    { tn_circuit_ablation *s = (tn_circuit_ablation *)at; OF(int64_t) = s->count; OF(tn_tensor *) = s->path; OF(tn_tensor *) =
        s->predicted; OF(tn_tensor *) = s->measured; OF(double) = s->r2; OF(double) = s->r2_shuffled; }
    { tn_circuit_bound_desc *s = (tn_circuit_bound_desc *)at; s->unknown = OF(int64_t); s->dropped = OF(uint64_t); }
    { tn_circuit_bound *s = (tn_circuit_bound *)at; OF(int64_t) = s->count; OF(tn_tensor *) = s->best; OF(tn_tensor *) =
        s->margin; OF(tn_tensor *) = s->change; OF(double) = s->certified; OF(double) = s->accuracy; OF(double) = s->lower;
        OF(double) = s->upper; }
    { tn_circuit_steering_desc *s = (tn_circuit_steering_desc *)at; s->point = OF(const char *); s->edit = OF(tn_edit);
        s->orders = OF(int64_t); }
    { tn_circuit_steering *s = (tn_circuit_steering *)at; OF(int64_t) = s->orders; OF(tn_tensor *) = s->logits; OF(tn_tensor *)
        = s->measured; OF(tn_tensor *) = s->frozen; OF(tn_tensor *) = s->parts; OF(double) = s->rest; }
    { tn_circuit_alignment *s = (tn_circuit_alignment *)at; OF(tn_cp *) = s->a; OF(tn_cp *) = s->b; OF(tn_tensor *) =
        s->cosines; OF(double) = s->cosine; OF(tn_tensor *) = s->heads; }
    { tn_transformer_same_desc *s = (tn_transformer_same_desc *)at; s->tokens = OF(int64_t); s->points = OF(int64_t); s->seed =
        OF(uint64_t); }
    { tn_transformer_same_result *s = (tn_transformer_same_result *)at; OF(bool) = s->equal; OF(int64_t) = s->points; OF(double)
        = s->values; OF(double) = s->degree; OF(double) = s->chance; OF(tn_tensor *) = s->text; OF(int64_t) = s->position;
        OF(int64_t) = s->token; OF(double) = s->difference; OF(uint64_t) = s->prime; OF(uint64_t) = s->residue; }
    { tn_transformer_anomaly_result *s = (tn_transformer_anomaly_result *)at; OF(double) = s->score; OF(double) = s->largest;
        OF(double) = s->mean; OF(tn_coefficients) = s->terms; }
    { tn_image *s = (tn_image *)at; OF(tn_ctx *) = s->ctx; OF(int64_t) = s->width; OF(int64_t) = s->height; OF(uint8_t *) =
        s->pixels; }
    { tn_image_matrix_desc *s = (tn_image_matrix_desc *)at; s->title = OF(const char *); s->caption = OF(const char *);
        s->x_title = OF(const char *); s->y_title = OF(const char *); s->x_names = OF(const char * const *); s->y_names =
        OF(const char * const *); s->colours = OF(tn_image_colours); s->low = OF(double); s->high = OF(double); s->clip =
        OF(double); s->cell = OF(int64_t); s->size = OF(int64_t); s->largest = OF(bool); s->stretch = OF(bool); s->numbers =
        OF(bool); s->no_bar = OF(bool); s->no_ticks = OF(bool); s->scale = OF(int); }
    { tn_image_tiles_desc *s = (tn_image_tiles_desc *)at; s->rows = OF(int64_t); s->columns = OF(int64_t); s->title = OF(const
        char *); s->caption = OF(const char *); s->captions = OF(const char * const *); s->row_names = OF(const char * const *);
        s->column_names = OF(const char * const *); s->x_title = OF(const char *); s->y_title = OF(const char *); s->x_names =
        OF(const char * const *); s->y_names = OF(const char * const *); s->colours = OF(tn_image_colours); s->low = OF(double);
        s->high = OF(double); s->clip = OF(double); s->own_scales = OF(bool); s->cell = OF(int64_t); s->size = OF(int64_t);
        s->numbers = OF(bool); s->no_bar = OF(bool); s->scale = OF(int); }
    { tn_image_series *s = (tn_image_series *)at; OF(const char *) = s->name; OF(const double *) = s->x; OF(const double *) =
        s->y; OF(const double *) = s->low; OF(int64_t) = s->count; OF(tn_image_series_kind) = s->kind; OF(bool) = s->dashed;
        OF(bool) = s->show_last; OF(int) = s->colour; }
    { tn_image_plot_desc *s = (tn_image_plot_desc *)at; s->title = OF(const char *); s->caption = OF(const char *); s->x_title =
        OF(const char *); s->y_title = OF(const char *); s->x_names = OF(const char * const *); s->x_name_count = OF(int64_t);
        s->log_x = OF(bool); s->log_y = OF(bool); s->x_low = OF(double); s->x_high = OF(double); s->y_low = OF(double);
        s->y_high = OF(double); s->width = OF(int64_t); s->height = OF(int64_t); s->scale = OF(int); }
}

static const double constants[] = {
    TN_VERSION_MAJOR, TN_VERSION_MINOR, TN_VERSION_PATCH, TN_MAX_RANK, TN_WHY, TN_POLYNOMIAL_MAX, TN_CP_MAX_ORDER,
        TN_SCALE_DEPTH, TN_MAX_CYCLE, TN_RADIUS_MAX_LAYERS, TN_NET_ALL, TN_MPS_FIRST, TN_CIRCUIT_MLP, TN_CIRCUIT_SOURCE,
        TN_CIRCUIT_TARGET, TN_OK, TN_ERR_ARG, TN_ERR_SHAPE, TN_ERR_DTYPE, TN_ERR_MEMORY, TN_ERR_FILE, TN_ERR_FORMAT,
        TN_ERR_BACKEND, TN_ERR_DATA, TN_ERR_NONFINITE, TN_ERR_CONVERGENCE, TN_ERR_COMM, TN_REAL, TN_F32, TN_F64, TN_BF16,
        TN_I32, TN_SIMD_AUTO, TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AVX512, TN_SIMD_NEON, TN_GEMM_F32, TN_GEMM_BF16,
        TN_GEMM_BF16X3, TN_GEMM_BF16X6, TN_GEMM_TF32, TN_LOG_INFO, TN_LOG_WARN, TN_LOG_ERROR, TN_WEIGHT_F32, TN_WEIGHT_BF16,
        TN_WEIGHT_INT8, TN_ORDER_LARGEST, TN_ORDER_SMALLEST, TN_ORDER_MAGNITUDE, TN_ACT_NONE, TN_ACT_RELU, TN_ACT_RELU2,
        TN_ACT_GELU, TN_ACT_SWISH, TN_ACT_SIGMOID, TN_ACT_ABS, TN_ACT_ROUND, TN_ACT_EXP, TN_ACT_TANH, TN_ACT_SQRT, TN_ACT_LOG,
        TN_ATTEND_SOFTMAX, TN_ATTEND_SQUARED, TN_ATTEND_BILINEAR, TN_ATTEND_FORM_AUTO, TN_ATTEND_FORM_QUADRATIC,
        TN_ATTEND_FORM_LINEAR, TN_ROW_SCALE_DEFAULT, TN_ROW_SCALE_NONE, TN_ROW_SCALE_LENGTH, TN_ROW_SCALE_MEAN,
        TN_ROW_SCALE_SUM, TN_PLAN_COST, TN_PLAN_FLOPS, TN_PLAN_SIZE, TN_EIGH_ASCENDING, TN_EIGH_MAGNITUDE, TN_SVD_AUTO,
        TN_SVD_EXACT, TN_SVD_KRYLOV, TN_SVD_RANDOMISED, TN_LANCZOS_MAGNITUDE, TN_LANCZOS_LARGEST, TN_LANCZOS_SMALLEST,
        TN_INIT_DEFAULT, TN_INIT_ZERO, TN_INIT_ONE, TN_INIT_NORMAL, TN_INIT_UNIFORM, TN_INIT_GLOROT, TN_INIT_HE, TN_NORM_RMS,
        TN_NORM_LAYER, TN_MLP_BILINEAR, TN_MLP_RELU, TN_MLP_RELU2, TN_MLP_GELU, TN_MLP_SWISH, TN_MLP_GLU, TN_MLP_REGLU,
        TN_MLP_GEGLU, TN_MLP_SWIGLU, TN_MLP_GELU_TANH, TN_MLP_GEGLU_TANH, TN_PENALTY_L1, TN_PENALTY_L2, TN_ATTENTION_SOFTMAX,
        TN_ATTENTION_SQUARED, TN_ATTENTION_BILINEAR, TN_ATTENTION_DIFFERENTIAL, TN_ATTENTION_DIFFERENTIAL_PLAIN, TN_HEAD_Q1,
        TN_HEAD_K1, TN_HEAD_Q2, TN_HEAD_K2, TN_HEAD_V, TN_HEAD_O, TN_BOUNDARY_CLOSED, TN_BOUNDARY_DOMINANT, TN_BOUNDARY_VECTORS,
        TN_BOUNDARY_FIRST, TN_ROW_NORM_NONE, TN_ROW_NORM_L1, TN_ROW_NORM_L2, TN_CP_INPUT_PLAIN, TN_CP_INPUT_CONSTANT,
        TN_CP_STACK_AUTO, TN_CP_STACK_EXACT, TN_CP_STACK_SAMPLED, TN_CP_STACK_TREE, TN_CP_STACK_LAYER_SYMMETRISED,
        TN_NULL_MODEL_ENTRIES, TN_NULL_MODEL_PAIRS, TN_NET_COPY, TN_NET_REFER, TN_NET_SYMMETRIC, TN_NET_AS_GIVEN,
        TN_LOCAL_LINEAR, TN_LOCAL_COSINE, TN_LOCAL_POWERS, TN_LOCAL_GIVEN, TN_LOCAL_IDS, TN_DEEP_MPS, TN_DEEP_SITES,
        TN_SCHEDULE_CONSTANT, TN_SCHEDULE_COSINE, TN_SCHEDULE_LINEAR, TN_SCHEDULE_TRAPEZOID, TN_OPTIM_ADAMW, TN_OPTIM_SGD,
        TN_OPTIM_MUON, TN_MUON_SCALE_SHAPE, TN_MUON_SCALE_RMS, TN_MATCH_ALL, TN_MATCH_IGNORE_EXTRA, TN_BOS_NONE, TN_BOS_FIRST,
        TN_POSITIONS_ROPE, TN_POSITIONS_LEARNED, TN_POSITIONS_NONE, TN_PLACE_PRE, TN_PLACE_POST, TN_PLACE_SANDWICH,
        TN_HEAD_ROWS_PLAIN, TN_HEAD_ROWS_SWAPPED, TN_HEAD_ROWS_PAIRS, TN_CIRCUIT_ROWS, TN_CIRCUIT_COLUMNS, TN_CIRCUIT_AIM_LOGIT,
        TN_CIRCUIT_AIM_DIFFERENCE, TN_CIRCUIT_AIM_LOSS, TN_CIRCUIT_BY_PATH, TN_CIRCUIT_BY_DEGREE, TN_CIRCUIT_BY_MLPS,
        TN_IMAGE_COLOURS_DIVERGING, TN_IMAGE_COLOURS_SEQUENTIAL, TN_IMAGE_SERIES_LINE, TN_IMAGE_SERIES_POINTS,
        TN_IMAGE_SERIES_BARS, TN_IMAGE_SERIES_STEMS, TN_IMAGE_SERIES_BAND
};

/* What a zero means. */
typedef char zeros[
    TN_OK == 0 && TN_REAL == 0 && TN_SIMD_AUTO == 0 && TN_GEMM_F32 == 0 && TN_LOG_INFO == 0 && TN_WEIGHT_F32 == 0 &&
        TN_ORDER_LARGEST == 0 && TN_ACT_NONE == 0 && TN_ATTEND_SOFTMAX == 0 && TN_ATTEND_FORM_AUTO == 0 && TN_ROW_SCALE_DEFAULT
        == 0 && TN_PLAN_COST == 0 && TN_EIGH_ASCENDING == 0 && TN_SVD_AUTO == 0 && TN_LANCZOS_MAGNITUDE == 0 && TN_INIT_DEFAULT
        == 0 && TN_NORM_RMS == 0 && TN_MLP_BILINEAR == 0 && TN_PENALTY_L1 == 0 && TN_ATTENTION_SOFTMAX == 0 && TN_HEAD_Q1 == 0
        && TN_BOUNDARY_CLOSED == 0 && TN_ROW_NORM_NONE == 0 && TN_CP_INPUT_PLAIN == 0 && TN_CP_STACK_AUTO == 0 &&
        TN_NULL_MODEL_ENTRIES == 0 && TN_NET_COPY == 0 && TN_NET_SYMMETRIC == 0 && TN_LOCAL_LINEAR == 0 && TN_DEEP_MPS == 0 &&
        TN_SCHEDULE_CONSTANT == 0 && TN_OPTIM_ADAMW == 0 && TN_MUON_SCALE_SHAPE == 0 && TN_MATCH_ALL == 0 && TN_BOS_NONE == 0 &&
        TN_POSITIONS_ROPE == 0 && TN_PLACE_PRE == 0 && TN_HEAD_ROWS_PLAIN == 0 && TN_CIRCUIT_ROWS == 0 && TN_CIRCUIT_AIM_LOGIT
        == 0 && TN_CIRCUIT_BY_PATH == 0 && TN_IMAGE_COLOURS_DIVERGING == 0 && TN_IMAGE_SERIES_LINE == 0 ? 1 : -1];

int main(int count, char **words)
{
    double sum = 0;
    (void)words;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) sum += constants[i];
    if (count > 1000000) { functions(&sum); fields(&sum); }
    printf("constants add up to %g\n", sum);
    return sizeof(zeros) != 1;
}
