// Negative sampling with words that a span shares, forward and backward: a block for each span.
// LENGTH centres look at WORDS words, of which the first TARGETS may be their contexts, the others
// are drawn at random. What examples/word2vec/losses.py: shared_negatives computes, and its
// gradients, of rows that are read from the two tables and never stored in between.

#define CHUNK 32  // columns at a time
#define THREADS 128
#define SCORES ((LENGTH * WORDS + THREADS - 1) / THREADS)  // of a thread

#ifdef SINGLE
__device__ __forceinline__ T exp_of(T x) { return expf(x); }
__device__ __forceinline__ T log1p_of(T x) { return log1pf(x); }
#else
__device__ __forceinline__ T exp_of(T x) { return exp(x); }
__device__ __forceinline__ T log1p_of(T x) { return log1p(x); }
#endif

__device__ __forceinline__ void read_rows(T (*rows)[CHUNK + 1], const T* table, const I* ids,
    const int size, const int first, const int d)
{
    for (int e = threadIdx.x; e < size * CHUNK; e += THREADS) {
        const int column = first + e % CHUNK;
        const long long row = ids[e / CHUNK];
        rows[e / CHUNK][e % CHUNK] = column < d ? table[row * d + column] : 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) skip_gram(
    const T* __restrict__ inputs, const T* __restrict__ outputs, const I* __restrict__ centres,
    const I* __restrict__ words, const T* __restrict__ near, const T* __restrict__ sizes,
    T* __restrict__ centre_gradients, T* __restrict__ word_gradients, T* __restrict__ losses,
    const int d, const T scale)
{
    __shared__ T h[LENGTH][CHUNK + 1], c[WORDS][CHUNK + 1];
    __shared__ T g[LENGTH][WORDS];
    __shared__ T parts[THREADS / WARP];
    const long long span = blockIdx.x;
    const I* own = centres + span * LENGTH;
    const I* others = words + span * WORDS;
    T scores[SCORES];
    for (int k = 0; k < SCORES; k++) scores[k] = 0;
    for (int first = 0; first < d; first += CHUNK) {
        read_rows(h, inputs, own, LENGTH, first, d);
        read_rows(c, outputs, others, WORDS, first, d);
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < SCORES; k++) {
            const int e = threadIdx.x + k * THREADS;
            if (e >= LENGTH * WORDS) break;
            #pragma unroll 4
            for (int column = 0; column < CHUNK; column++) {
                scores[k] += h[e / WORDS][column] * c[e % WORDS][column];
            }
        }
        __syncthreads();
    }
    T loss = 0;
    #pragma unroll
    for (int k = 0; k < SCORES; k++) {
        const int e = threadIdx.x + k * THREADS;
        if (e >= LENGTH * WORDS) break;
        const int i = e / WORDS, j = e % WORDS;
        const bool target = j < TARGETS;
        const T weight = target ? near[(span * LENGTH + i) * TARGETS + j]
                                : sizes[span * LENGTH + i] * scale;
        const T x = scores[k], small = exp_of(x < 0 ? x : -x);  // of -|x|: no overflow
        const T sigmoid = (x < 0 ? small : 1) / (1 + small);
        loss += weight * (log1p_of(small) + (x < 0 ? 0 : x) - (target ? x : 0));
        g[i][j] = weight * (sigmoid - (target ? 1 : 0));
    }
    loss = warp_sum(loss);
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = loss;
    __syncthreads();
    if (threadIdx.x == 0) {
        T total = 0;
        for (int warp = 0; warp < THREADS / WARP; warp++) total += parts[warp];
        losses[span] = total;
    }
    for (int first = 0; first < d; first += CHUNK) {
        read_rows(h, inputs, own, LENGTH, first, d);
        read_rows(c, outputs, others, WORDS, first, d);
        __syncthreads();
        for (int e = threadIdx.x; e < (LENGTH + WORDS) * CHUNK; e += THREADS) {
            const int row = e / CHUNK, column = e % CHUNK;
            if (first + column >= d) continue;
            T sum = 0;
            if (row < LENGTH) {
                for (int j = 0; j < WORDS; j++) sum += g[row][j] * c[j][column];
                centre_gradients[(span * LENGTH + row) * d + first + column] = sum;
            } else {
                const int j = row - LENGTH;
                for (int i = 0; i < LENGTH; i++) sum += g[i][j] * h[i][column];
                word_gradients[(span * WORDS + j) * d + first + column] = sum;
            }
        }
        __syncthreads();
    }
}
