/* Does the next writer overwrite the gradient of t, which is not a view? */
static bool tni_grad_is_new(const tn_tensor *t)
{
    if (!t->grad) return true;
    return t->flags & TNI_PARAM ? (t->grad->flags & TNI_ZEROED) != 0 : (t->flags & TNI_GRAD_USED) == 0;
}
