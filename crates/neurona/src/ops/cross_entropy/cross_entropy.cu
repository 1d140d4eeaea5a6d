// Cross-entropy of logits [rows, classes] with class numbers.
#include "limits.cuh"
#include "rows.cuh"

// Of the logits.
#ifndef ELEMENT
#define ELEMENT float
#endif
// Of their gradient.
#ifndef GRADIENT
#define GRADIENT ELEMENT
#endif
// Of losses and their gradients, and of what the gradient needs of each row.
#ifndef LOSS
#define LOSS ELEMENT
#endif
// What becomes of the losses of the rows: 0 they are the result, 1 their mean over the rows not ignored, 2 their sum.
#ifndef REDUCTION
#define REDUCTION 1
#endif

typedef ELEMENT T;
typedef LOSS L;
typedef GRADIENT G;
typedef Wide<T> W;

__device__ __forceinline__ L result(double total, double count) { return narrow<L>((Wide<L>)(REDUCTION == 1 ? total / count : total)); }

// What the logits of a row come to. Without the maximum the logarithm would lose its digits next to large logits.
struct Row {
    W top, log_total, sum;

    // Every thread of the block calls it. The sum of the logits is there with smoothing only.
    __device__ __forceinline__ Row(const T *x, i64 n, double smoothing) : top(Limits<W>::least()), sum(0) {
        W total = 0, value[V];
        each_group(n, [&](i64 i) {
            load_wide(value, x + i);
            for (int k = 0; k < V; k++) top = larger(top, value[k]), sum += value[k];
        });
        top = row_max(top);
        each_group(n, [&](i64 i) {
            load_wide(value, x + i);
            for (int k = 0; k < V; k++) total += exp(value[k] - top);
        });
        log_total = log(row_sum(total));
        // The same for the whole grid, so no thread stays away from the exchange.
        if (smoothing > 0) sum = row_sum(sum);
    }

    // Of a target that is not ignored; NaN where it is no class.
    __device__ __forceinline__ W loss(const T *x, i64 n, i64 target, double smoothing) const {
        if (target < 0 || target >= n) return Limits<W>::nan();
        W own = log_total + (top - widen(x[target])), even = log_total + (top - sum / (W)n);
        return smoothing > 0 ? (W)(1 - smoothing) * own + (W)smoothing * even : own;
    }
};

// The gradient by a row of logits.
__device__ __forceinline__ void write_gradient(const T *x, G *dx, i64 n, i64 target, W top, W log_total, W scale, double smoothing, i64 ignored) {
    W even = (W)(smoothing / (double)n), hit = (W)(1 - smoothing), value[V];
    if (target < 0 || target >= n) scale = Limits<W>::nan();
    each_group(n, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) {
            W share = exp((value[k] - top) - log_total) - even - (i + k == target ? hit : 0);
            value[k] = target == ignored ? 0 : share * scale;
        }
        store_narrow(dx + i, value);
    });
}

// How many rows a mean is over. Without parts counted before every block counts the rows itself: while they are few that
// is cheaper than a launch.
__device__ __forceinline__ double counted_rows(const i64 *targets, i64 rows, i64 ignored, const double *counted, int parts, double *room) {
    if (REDUCTION != 1) return 0;
    double count = 0;
    if (parts) {
        for (int i = threadIdx.x; i < parts; i += blockDim.x) count += counted[i];
    } else {
        int own = 0;
        // All loads on their way before the first is needed.
#pragma unroll 8
        for (int i = threadIdx.x; i < (int)rows; i += blockDim.x) own += targets[i] != ignored;
        count = own;
    }
    return block_sum(count, room);
}

// The factor of a row's gradient.
__device__ __forceinline__ W row_scale(const L *dloss, i64 row, double count) {
    if (REDUCTION == 0) return (W)widen(dloss[row]);
    return REDUCTION == 1 ? (W)((double)widen(*dloss) / count) : (W)widen(*dloss);
}

// The loss, and for each row the logarithm of the sum of exponentials above the row's maximum. One block writes the result
// itself, several leave partial sums.
// One block of many rows may do all.
extern "C" __global__ void __launch_bounds__(1024) cross_entropy(const T *__restrict__ x, const i64 *__restrict__ targets, L *__restrict__ loss,
                                         L *__restrict__ logs, double *__restrict__ partial, i64 rows, i64 n, double smoothing,
                                         i64 ignored, u64 *fault) {
    __shared__ double room[33];
    double losses = 0, count = 0;
    for (i64 first = (i64)blockIdx.x * rows_a_block(); first < rows; first += (i64)gridDim.x * rows_a_block()) {
        i64 row = first + threadIdx.x / LANES;
        const T *from = x + row * n;
        Row known(from, row < rows ? n : 0, smoothing);
        if (row >= rows || row_lane() > 0) continue;
        i64 target = targets[row];
        logs[row] = narrow<L>((Wide<L>)known.log_total);
        W own = target == ignored ? 0 : known.loss(from, n, target, smoothing);
        if (target != ignored && (target < 0 || target >= n)) report(fault, row, target);
        if (REDUCTION == 0) loss[row] = narrow<L>((Wide<L>)own);
        losses += own, count += target != ignored;
    }
    if (REDUCTION == 0) return;
    losses = block_sum(losses, room);
    count = block_sum(count, room);
    if (threadIdx.x > 0) return;
    if (gridDim.x == 1) *loss = result(losses, count);
    else partial[2 * blockIdx.x] = losses, partial[2 * blockIdx.x + 1] = count;
}

// Joins the partial sums; one block.
extern "C" __global__ void cross_entropy_finish(const double *__restrict__ partial, int parts, L *__restrict__ loss) {
    __shared__ double room[33];
    double losses = 0, count = 0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x) losses += partial[2 * i], count += partial[2 * i + 1];
    losses = block_sum(losses, room);
    count = block_sum(count, room);
    if (threadIdx.x == 0) *loss = result(losses, count);
}

// How many of the rows that fall to each block are not ignored.
extern "C" __global__ void cross_entropy_count(const i64 *__restrict__ targets, i64 rows, i64 ignored, double *__restrict__ counted) {
    __shared__ double room[33];
    double count = 0;
    for (i64 i = first_element(); i < rows; i += element_stride()) count += targets[i] != ignored;
    count = block_sum(count, room);
    if (threadIdx.x == 0) counted[blockIdx.x] = count;
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) cross_entropy_gradient(const T *__restrict__ x, const L *__restrict__ logs, const i64 *__restrict__ targets,
                                                  const L *__restrict__ dloss, G *__restrict__ dx, const double *__restrict__ counted,
                                                  int parts, i64 rows, i64 n, double smoothing, i64 ignored) {
    __shared__ double room[33];
    i64 row = block_row(blockIdx.x), size = row < rows ? n : 0;
    x += row * n, dx += row * n;
    W top = Limits<W>::least(), value[V];
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) top = larger(top, value[k]);
    });
    top = row_max(top);
    double count = counted_rows(targets, rows, ignored, counted, parts, room);
    if (row >= rows) return;
    write_gradient(x, dx, n, targets[row], top, widen(logs[row]), row_scale(dloss, row, count), smoothing, ignored);
}

// Loss and gradient. Each block leaves the sum of its losses in `partial`, and the one that is done last adds them up, in
// the order of the blocks. `arrived` is 0 before the launch, and again after it.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) cross_entropy_both(const T *__restrict__ x, const i64 *__restrict__ targets, const L *__restrict__ dloss,
                                              L *__restrict__ loss, L *__restrict__ logs, G *__restrict__ dx, volatile double *partial, u32 *arrived,
                                              const double *__restrict__ counted, int parts, i64 rows, i64 n, double smoothing, i64 ignored,
                                              u64 *fault) {
    __shared__ double room[33];
    __shared__ bool last;
    double losses = 0, count = counted_rows(targets, rows, ignored, counted, parts, room);
    for (i64 first = (i64)blockIdx.x * rows_a_block(); first < rows; first += (i64)gridDim.x * rows_a_block()) {
        i64 row = first + threadIdx.x / LANES;
        const T *from = x + row * n;
        Row known(from, row < rows ? n : 0, smoothing);
        if (row >= rows) continue;
        i64 target = targets[row];
        write_gradient(from, dx + row * n, n, target, known.top, known.log_total, row_scale(dloss, row, count), smoothing, ignored);
        if (row_lane() > 0) continue;
        logs[row] = narrow<L>((Wide<L>)known.log_total);
        W own = target == ignored ? 0 : known.loss(from, n, target, smoothing);
        if (target != ignored && (target < 0 || target >= n)) report(fault, row, target);
        if (REDUCTION == 0) loss[row] = narrow<L>((Wide<L>)own);
        losses += own;
    }
    if (REDUCTION == 0) return;
    losses = block_sum(losses, room);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = losses;
        __threadfence();
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    losses = 0;
    for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) losses += partial[i];
    losses = block_sum(losses, room);
    if (threadIdx.x == 0) *loss = result(losses, count);
}
