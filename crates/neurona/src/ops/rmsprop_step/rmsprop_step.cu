// A step of RMSprop for all parameters.
#ifndef CENTERED
#define CENTERED 0
#endif
#ifndef MOMENTUM
#define MOMENTUM 0
#endif
#ifndef MAXIMIZE
#define MAXIMIZE 0
#endif
#ifndef OPERANDS
#define OPERANDS (3 + CENTERED + MOMENTUM)
#endif
#include "sweep.cuh"

// Scalars: learning rate, alpha, epsilon, weight decay, momentum.
extern "C" __global__ void rmsprop_step(const __grid_constant__ Table table, const __grid_constant__ Pieces pieces, const double *__restrict__ scalars) {
    const Share share = share_of(pieces);
    if (!share.inside()) return;
    Vector<T, N> p = share.read<T>(table, 0);
    const Vector<G, N> g = share.read<G>(table, 1);
    Vector<T, N> v = share.read<T>(table, 2);
#if CENTERED
    Vector<T, N> m = share.read<T>(table, 3);
#endif
#if MOMENTUM
    Vector<T, N> buffer = share.read<T>(table, 3 + CENTERED);
    const W momentum = (W)scalars[4];
#endif
    const W rate = (W)scalars[0], keep = (W)scalars[1], add = (W)(1 - scalars[1]), epsilon = (W)scalars[2], decay = (W)scalars[3];
#pragma unroll
    for (int k = 0; k < N; k++) {
        W value = widen(p.at[k]), slope = widen(g.at[k]);
        slope = (MAXIMIZE ? -slope : slope) + decay * value;
        W square = keep * widen(v.at[k]) + add * (slope * slope), spread = square;
        v.at[k] = narrow<T>(square);
#if CENTERED
        W mean = between(widen(m.at[k]), slope, add, keep);
        m.at[k] = narrow<T>(mean);
        spread = square - product(mean, mean);
#endif
        W move = slope / (sqrt(spread) + epsilon);
#if MOMENTUM
        move = momentum * widen(buffer.at[k]) + move;
        buffer.at[k] = narrow<T>(move);
#endif
        p.at[k] = narrow<T>(value - rate * move);
    }
    share.write(table, 0, p);
    share.write(table, 1, v);
#if CENTERED
    share.write(table, 2, m);
#endif
#if MOMENTUM
    share.write(table, 2 + CENTERED, buffer);
#endif
}
