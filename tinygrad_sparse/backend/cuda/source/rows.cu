// Lookups. A block is lanes (x) along a row and rows (y); a thread has four rows under way.

#define AHEAD 4

// out[i] = table[ids[i]]; an id outside of the table reads nothing, and its place goes to *bad.
extern "C" __global__ void take_rows(T* __restrict__ out, const T* __restrict__ table,
    const I* __restrict__ ids, const long long n, const long long rows, const int d, int* bad)
{
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    const long long first = ((long long)blockIdx.x * blockDim.y + threadIdx.y) * AHEAD;
    if (column >= d) return;
    Pack packs[AHEAD];
    #pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        if (first + a >= n) break;
        const long long row = ids[first + a];
        const bool good = row >= 0 && row < rows;
        packs[a] = good ? load(table + row * d + column) : zeros();
        if (!good && bad && column == 0) atomicMin(bad, (int)(first + a));
    }
    #pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        if (first + a < n) store(out + (first + a) * d + column, packs[a]);
    }
}

// Ids as the kernels want them: narrow, and counted from the start.
extern "C" __global__ void check_ids(I* __restrict__ out, const long long* __restrict__ ids,
    const long long n, const long long rows, int* bad)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const long long id = ids[i] < 0 ? ids[i] + rows : ids[i];
    if (id < 0 || id >= rows) atomicMin(bad, (int)i);
    out[i] = (I)id;
}

// out[b] = the sum of weights[i] * table[ids[i]] for i in starts[b] ... starts[b + 1] - 1.
extern "C" __global__ void embedding_bag(T* __restrict__ out, const T* __restrict__ table,
    const I* __restrict__ ids, const long long* __restrict__ starts,
    const T* __restrict__ weights, const long long bags, const int d)
{
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    const long long bag = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (column >= d || bag >= bags) return;
    const long long stop = starts[bag + 1];
    Pack sum = zeros();
    for (long long first = starts[bag]; first < stop; first += AHEAD) {
        Pack packs[AHEAD];
        #pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (first + a < stop) packs[a] = load(table + (long long)ids[first + a] * d + column);
        }
        #pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (first + a >= stop) break;
            if (weights) {
                #pragma unroll
                for (int v = 0; v < VEC; v++) packs[a].x[v] *= weights[first + a];
            }
            add(sum, packs[a]);
        }
    }
    store(out + bag * d + column, sum);
}
