// A step of stochastic gradient descent for all parameters.
#ifndef MOMENTUM
#define MOMENTUM 1
#endif
#ifndef NESTEROV
#define NESTEROV 0
#endif
#ifndef MAXIMIZE
#define MAXIMIZE 0
#endif
#ifndef OPERANDS
#define OPERANDS (2 + MOMENTUM)
#endif
#include "sweep.cuh"

// Scalars: learning rate, momentum, dampening, weight decay, step (1 the first time).
extern "C" __global__ void sgd_step(const __grid_constant__ Table table, const __grid_constant__ Pieces pieces, const double *__restrict__ scalars) {
    const Share share = share_of(pieces);
    if (!share.inside()) return;
    Vector<T, N> p = share.read<T>(table, 0);
    const Vector<G, N> g = share.read<G>(table, 1);
    const W rate = (W)scalars[0], decay = (W)scalars[3];
#if MOMENTUM
    Vector<T, N> buffer = share.read<T>(table, 2);
    // The first step's buffer is the gradient itself, undampened.
    const bool first = scalars[4] <= 1;
    const W momentum = (W)scalars[1], add = (W)(first ? 1 : 1 - scalars[2]);
#endif
#pragma unroll
    for (int k = 0; k < N; k++) {
        W value = widen(p.at[k]), slope = widen(g.at[k]);
        slope = (MAXIMIZE ? -slope : slope) + decay * value;
#if MOMENTUM
        // A first step must not use the buffer: it may hold anything.
        W moved = (first ? W(0) : momentum * widen(buffer.at[k])) + add * slope;
        buffer.at[k] = narrow<T>(moved);
        slope = NESTEROV ? slope + momentum * moved : moved;
#endif
        p.at[k] = narrow<T>(value - rate * slope);
    }
    share.write(table, 0, p);
#if MOMENTUM
    share.write(table, 1, buffer);
#endif
}
