// Cross-entropy of logits [rows, classes] with class numbers.
#include "limits.cuh"
#include "rows.cuh"

// Of the logits and their gradient.
#ifndef ELEMENT
#define ELEMENT float
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
typedef Wide<T> W;

__device__ __forceinline__ L result(double total, double count) { return narrow<L>((Wide<L>)(REDUCTION == 1 ? total / count : total)); }

// The loss, and for each row the logarithm of the sum of exponentials above the row's maximum. Without the maximum: next
// to large logits the logarithm would lose its digits. One block writes the result itself, several leave partial sums.
extern "C" __global__ void cross_entropy(const T *__restrict__ x, const i64 *__restrict__ targets, L *__restrict__ loss,
                                         L *__restrict__ logs, double *__restrict__ partial, i64 rows, i64 n, double smoothing,
                                         i64 ignored) {
    take_turn();
    __shared__ double room[33];
    double losses = 0, count = 0;
    for (i64 first = (i64)blockIdx.x * rows_a_block(); first < rows; first += (i64)gridDim.x * rows_a_block()) {
        i64 row = first + threadIdx.x / LANES, size = row < rows ? n : 0;
        const T *from = x + row * n;
        W top = Limits<W>::least(), total = 0, sum = 0, value[V];
        each_group(size, [&](i64 i) {
            load_wide(value, from + i);
            for (int k = 0; k < V; k++) top = larger(top, value[k]), sum += value[k];
        });
        top = row_max(top);
        each_group(size, [&](i64 i) {
            load_wide(value, from + i);
            for (int k = 0; k < V; k++) total += exp(value[k] - top);
        });
        total = row_sum(total);
        // The same for the whole grid, so no thread stays away from the exchange.
        if (smoothing > 0) sum = row_sum(sum);
        if (row >= rows || row_lane() > 0) continue;
        W log_total = log(total), own = 0;
        i64 target = targets[row];
        logs[row] = narrow<L>((Wide<L>)log_total);
        if (target != ignored) {
            count += 1;
            own = Limits<W>::nan();
            if (target >= 0 && target < n) {
                own = log_total + (top - widen(from[target]));
                W even = log_total + (top - sum / (W)n);
                if (smoothing > 0) own = (W)(1 - smoothing) * own + (W)smoothing * even;
            }
        }
        if (REDUCTION == 0) loss[row] = narrow<L>((Wide<L>)own);
        losses += own;
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
    take_turn();
    __shared__ double room[33];
    double losses = 0, count = 0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x) losses += partial[2 * i], count += partial[2 * i + 1];
    losses = block_sum(losses, room);
    count = block_sum(count, room);
    if (threadIdx.x == 0) *loss = result(losses, count);
}

// How many of the rows that fall to each block are not ignored.
extern "C" __global__ void cross_entropy_count(const i64 *__restrict__ targets, i64 rows, i64 ignored, double *__restrict__ counted) {
    take_turn();
    __shared__ double room[33];
    double count = 0;
    for (i64 i = first_element(); i < rows; i += element_stride()) count += targets[i] != ignored;
    count = block_sum(count, room);
    if (threadIdx.x == 0) counted[blockIdx.x] = count;
}

// Without parts counted before every block counts the rows itself: while they are few that is cheaper than a launch.
extern "C" __global__ void cross_entropy_gradient(const T *__restrict__ x, const L *__restrict__ logs, const i64 *__restrict__ targets,
                                                  const L *__restrict__ dloss, T *__restrict__ dx, const double *__restrict__ counted,
                                                  int parts, i64 rows, i64 n, double smoothing, i64 ignored) {
    take_turn();
    __shared__ double room[33];
    i64 row = block_row(blockIdx.x), size = row < rows ? n : 0;
    x += row * n, dx += row * n;
    W top = Limits<W>::least(), value[V];
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) top = larger(top, value[k]);
    });
    top = row_max(top);
    double count = 0;
    if (REDUCTION == 1) {
        if (parts) for (int i = threadIdx.x; i < parts; i += blockDim.x) count += counted[i];
        else for (i64 i = threadIdx.x; i < rows; i += blockDim.x) count += targets[i] != ignored;
        count = block_sum(count, room);
    }
    if (row >= rows) return;
    i64 target = targets[row];
    W log_total = widen(logs[row]), even = (W)(smoothing / (double)n), hit = (W)(1 - smoothing);
    W scale = REDUCTION == 0 ? (W)widen(dloss[row]) : REDUCTION == 1 ? (W)((double)widen(*dloss) / count) : (W)widen(*dloss);
    if (target < 0 || target >= n) scale = Limits<W>::nan();
    each_group(size, [&](i64 i) {
        load_wide(value, x + i);
        for (int k = 0; k < V; k++) {
            W share = exp((value[k] - top) - log_total) - even - (i + k == target ? hit : 0);
            value[k] = target == ignored ? 0 : share * scale;
        }
        store_narrow(dx + i, value);
    });
}
