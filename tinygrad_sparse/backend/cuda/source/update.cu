// A formula on rows: ARRAYS, SETTINGS and `apply` are printed from its Python function. A block is
// lanes (x) along a row and rows or tiles (y). Rows are 64-bit; `places` is where the slots have
// them, if elsewhere. Nothing depends on the order in which blocks run.

#define AHEAD 4
#define SHORT 4  // tiles of a run that the threads of one column add up alone
#define THREADS 256

// Rows that are each there once; no `rows`: all of them. `count`: how many, if that is not n.
// `members`: which of the places is a row's, if it is not the same one.
extern "C" __global__ void update_rows(ARRAYS, const I* __restrict__ rows,
    const long long* __restrict__ places, const int* __restrict__ members,
    const T* __restrict__ gradients, const int* __restrict__ count, const long long n,
    const int d SETTINGS)
{
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (column >= d || i >= (count ? *count : n)) return;
    const long long row = rows ? (long long)rows[i] : i;
    const long long place = places ? places[members ? members[i] : i] : row;
    apply(ARRAY_NAMES, row, place, i, column, d, load(gradients + i * d + column) SETTING_NAMES);
}

// Sorted ids, in tiles of so many: the sum of each run of equal ids is a gradient. A run that lies
// in one tile is applied here; the pieces of others go to `pieces`, two a tile: [0] of the run that
// began before, [1] of the one that goes on. Members are added in order.
extern "C" __global__ void update_runs(ARRAYS, const I* __restrict__ keys,
    const int* __restrict__ order, const long long* __restrict__ places,
    const T* __restrict__ values, T* __restrict__ pieces, const int n, const int d,
    const int tile SETTINGS)
{
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    const long long j = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (column >= d || j * tile >= n) return;
    const int start = (int)(j * tile), stop = min(start + tile, n);
    I key = keys[start];
    bool began = start == 0 || keys[start - 1] != key;  // whether the run begins in this tile
    int member = order[start];
    Pack sum = nothing(), packs[AHEAD];
    I ids[AHEAD];
    int members[AHEAD];
    for (int i = start; i <= stop; i++) {  // one step more, which ends the last run
        if ((i - start) % AHEAD == 0) {
            #pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                if (i + a >= stop) break;
                ids[a] = keys[i + a];
                members[a] = order[i + a];
                packs[a] = load(values + (long long)members[a] * d + column);
            }
        }
        if (i == stop || ids[0] != key) {
            const bool goes_on = i == stop && stop < n && keys[stop] == key;
            if (began && !goes_on) {
                const long long row = (long long)key, place = places ? places[member] : row;
                apply(ARRAY_NAMES, row, place, member, column, d, sum SETTING_NAMES);
            } else {
                store(pieces + (2 * j + (began ? 1 : 0)) * d + column, sum);
            }
            began = true;
            sum = nothing();
            key = ids[0];
        }
        if (i < stop) add(sum, packs[0]);
        member = members[0];
        #pragma unroll
        for (int a = 1; a < AHEAD; a++) {
            ids[a - 1] = ids[a];
            members[a - 1] = members[a];
            packs[a - 1] = packs[a];
        }
    }
}

struct Sum { double x[VEC]; };

__device__ __forceinline__ void add_pieces(Sum& sum, const T* pieces, const long long first,
    const long long last, const int step, const int column, const int d)
{
    #pragma unroll 4
    for (long long j = first; j <= last; j += step) {
        const Pack piece = load(pieces + 2 * j * d + column);
        #pragma unroll
        for (int v = 0; v < VEC; v++) sum.x[v] += (double)piece.x[v];
    }
}

__device__ __forceinline__ Pack narrow(const Sum sum)
{
    Pack pack;
    #pragma unroll
    for (int v = 0; v < VEC; v++) pack.x[v] = (T)sum.x[v];
    return pack;
}

// The last tile into which the run goes on that begins in tile j and is in its last place; j: none.
__device__ __forceinline__ long long last_tile(const I* keys, const long long j, const int n,
    const int tile)
{
    const long long start = j * tile, next = start + tile;
    if (next >= n || keys[next] != keys[next - 1]) return j;
    const I key = keys[next];
    if (keys[start] == key && start > 0 && keys[start - 1] == key) return j;  // began before
    long long low = next, high = n;  // keys[low] == key, keys[high] is another
    while (high - low > 1) {
        const long long middle = low + (high - low) / 2;
        if (keys[middle] == key) low = middle; else high = middle;
    }
    return low / tile;
}

// Runs over several tiles: their pieces are added in float64, those of long runs by a whole block.
extern "C" __global__ void update_ends(ARRAYS, const I* __restrict__ keys,
    const int* __restrict__ order, const long long* __restrict__ places,
    const T* __restrict__ pieces, const int n, const int d, const int tile SETTINGS)
{
    __shared__ long long lasts[THREADS];
    __shared__ double sums[THREADS][VEC];
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * VEC;
    const long long first = (long long)blockIdx.x * blockDim.y, j = first + threadIdx.y;
    const long long last = j * tile < n ? last_tile(keys, j, n, tile) : j;
    const bool inside = column < d;
    Sum sum = {};  // of the run that begins in tile j and goes on to the last one
    if (inside && last > j) {
        add_pieces(sum, pieces + d, j, j, 1, column, d);
        if (last - j <= SHORT) add_pieces(sum, pieces, j + 1, last, 1, column, d);
    }
    if (threadIdx.x == 0) lasts[threadIdx.y] = last;
    __syncthreads();
    for (int y = 0; y < (int)blockDim.y; y++) {
        if (lasts[y] - (first + y) <= SHORT) continue;
        Sum part = {};
        const long long from = first + y + 1 + threadIdx.y;
        if (inside) add_pieces(part, pieces, from, lasts[y], blockDim.y, column, d);
        for (int v = 0; v < VEC; v++) sums[threadIdx.y * blockDim.x + threadIdx.x][v] = part.x[v];
        __syncthreads();
        if ((int)threadIdx.y == y) {
            for (int other = 0; other < (int)blockDim.y; other++) {
                for (int v = 0; v < VEC; v++) {
                    sum.x[v] += sums[other * blockDim.x + threadIdx.x][v];
                }
            }
        }
        __syncthreads();
    }
    if (inside && last > j) {
        const int member = order[last * tile];
        const long long row = (long long)keys[last * tile], place = places ? places[member] : row;
        apply(ARRAY_NAMES, row, place, member, column, d, narrow(sum) SETTING_NAMES);
    }
}
