// Joins the gate and the up of an expert (moe.h). ACT is the vt_activation: 0 silu, 1 gelu, 2 clamped with a limit;
// 3 the square of ReLU, without a gate: its sum comes as `gate`.
constexpr bool kGate = UP && ACT != 3; // the first product's rows are pairs

INLINE float gated(float gate, float up, float limit)
{
    if constexpr (ACT == 3) {
        float r = fmaxf(gate, 0.f);
        return r * r;
    } else if constexpr (ACT == 2) {
        gate = gate > limit ? limit : gate; // a NaN stays one
        up = up > limit ? limit : up < -limit ? -limit : up;
        return __fdividef(gate, 1.f + __expf(-1.702f * gate)) * (up + 1.f);
    } else {
        return (ACT == 1 ? gelu_tanh(gate) : silu(gate)) * up;
    }
}
