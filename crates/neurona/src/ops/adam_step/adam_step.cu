// A step of Adam or AdamW for all parameters.
#ifndef AMSGRAD
#define AMSGRAD 0
#endif
#ifndef DECOUPLED
#define DECOUPLED 0
#endif
#ifndef MAXIMIZE
#define MAXIMIZE 0
#endif
#ifndef OPERANDS
#define OPERANDS (4 + AMSGRAD)
#endif
#include "sweep.cuh"

struct Factors { W shrink, decay, size, correction, weight, rest, keep, add, epsilon; };

// Scalars: learning rate, beta 1, beta 2, epsilon, weight decay, step (1 the first time).
extern "C" __global__ void adam_step(const __grid_constant__ Table table, const __grid_constant__ Pieces pieces, const double *__restrict__ scalars) {
    const Share share = share_of(pieces);
    Vector<T, N> p, m, v;
    Vector<G, N> g;
#if AMSGRAD
    Vector<T, N> top;
#endif
    if (share.inside()) {
        p = share.read<T>(table, 0);
        g = share.read<G>(table, 1);
        m = share.read<T>(table, 2);
        v = share.read<T>(table, 3);
#if AMSGRAD
        top = share.read<T>(table, 4);
#endif
    }
    // Powers in double precision cost hundreds of instructions: one thread computes them while the others wait for
    // memory anyway.
    __shared__ Factors shared_factors;
    if (threadIdx.x == 0) {
        const double rate = scalars[0], beta1 = scalars[1], beta2 = scalars[2], decay = scalars[4], step = scalars[5];
        Factors f;
        f.shrink = (W)(DECOUPLED ? 1 - rate * decay : 1.0);
        f.decay = (W)(DECOUPLED ? 0.0 : decay);
        f.size = (W)(rate / (1 - pow(beta1, step)));
        f.correction = (W)sqrt(1 - pow(beta2, step));
        f.weight = (W)(1 - beta1);
        f.rest = (W)beta1;
        f.keep = (W)beta2;
        f.add = (W)(1 - beta2);
        f.epsilon = (W)scalars[3];
        shared_factors = f;
    }
    __syncthreads();
    if (!share.inside()) return;
    const Factors f = shared_factors;
#pragma unroll
    for (int k = 0; k < N; k++) {
        W value = widen(p.at[k]) * f.shrink, slope = widen(g.at[k]);
        slope = (MAXIMIZE ? -slope : slope) + f.decay * value;
        W mean = between(widen(m.at[k]), slope, f.weight, f.rest);
        W square = f.keep * widen(v.at[k]) + f.add * (slope * slope);
        W under = square;
#if AMSGRAD
        under = square > widen(top.at[k]) ? square : widen(top.at[k]);
        top.at[k] = narrow<T>(under);
#endif
        m.at[k] = narrow<T>(mean);
        v.at[k] = narrow<T>(square);
        p.at[k] = narrow<T>(value - f.size * (mean / (sqrt(under) / f.correction + f.epsilon)));
    }
    share.write(table, 0, p);
    share.write(table, 1, m);
    share.write(table, 2, v);
#if AMSGRAD
    share.write(table, 3, top);
#endif
}
