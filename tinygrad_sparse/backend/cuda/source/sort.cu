// A stable sort of ids, eight bits a pass, and the runs of equal ids that it leaves. K: the ids,
// unsigned. Each warp of a block has a part of the block's ids in order, and counts its own digits:
// where a part's digits go is then known, and the order of equal ids is kept without any luck.

#define DIGITS 256

__device__ __forceinline__ int digit_of(const K key, const int shift)
{
    return (int)(key >> shift) & (DIGITS - 1);
}

// The part of this warp in [start, stop): every part but the last ones has whole warps of ids.
__device__ __forceinline__ void find_part(int& start, int& stop)
{
    const int warps = blockDim.x / WARP, warp = threadIdx.x / WARP;
    const int size = ((stop - start + warps - 1) / warps + WARP - 1) / WARP * WARP;
    const int first = min(start + warp * size, stop);
    stop = min(first + size, stop);
    start = first;
}

__device__ __forceinline__ void count_digits(const K* keys, const int start, const int stop,
    const int shift, int* counts)
{
    for (int i = start + threadIdx.x % WARP; i < stop; i += WARP) {
        atomicAdd(counts + digit_of(keys[i], shift), 1);
    }
}

// Moves a warp's part; places[digit] is where its next id with that digit goes. No order: i is it.
__device__ __forceinline__ void move_part(const K* keys, const int* order, const int start,
    const int stop, const int shift, int* places, K* new_keys, int* new_order)
{
    const int lane = threadIdx.x % WARP;
    for (int first = start; first < stop; first += WARP) {
        const int i = first + lane;
        const bool there = i < stop;
        const K key = there ? keys[i] : 0;
        const int digit = there ? digit_of(key, shift) : DIGITS;
        const unsigned equals = __match_any_sync(FULL, digit);
        const int before = __popc(equals & ((1u << lane) - 1));
        const int place = there ? places[digit] + before : 0;
        __syncwarp();
        if (there && before == 0) places[digit] += __popc(equals);
        __syncwarp();
        if (there) {
            new_keys[place] = key;
            new_order[place] = order ? order[i] : i;
        }
    }
}

// counts[warp][digit] becomes the first place of each: after `base`, after lower digits, ...
// Threads 0 ... DIGITS - 1 each have a digit, and give its `base`.
__device__ __forceinline__ void spread(int (*counts)[DIGITS], int base)
{
    if (threadIdx.x < DIGITS) {
        for (int warp = 0; warp < (int)blockDim.x / WARP; warp++) {
            const int count = counts[warp][threadIdx.x];
            counts[warp][threadIdx.x] = base;
            base += count;
        }
    }
    __syncthreads();
}

__device__ __forceinline__ void clear(int* counts, const int size)
{
    for (int i = threadIdx.x; i < size; i += blockDim.x) counts[i] = 0;
    __syncthreads();
}

// -- many blocks: three launches a pass ------------------------------------------------------------

// counts[digit * blocks + block]: how many ids of a block have a digit.
extern "C" __global__ void sort_count(const K* __restrict__ keys, int* __restrict__ counts,
    const int n, const int size, const int shift)
{
    __shared__ int here[DIGITS];
    clear(here, DIGITS);
    int start = blockIdx.x * size, stop = min((int)(blockIdx.x + 1) * size, n);
    find_part(start, stop);
    count_digits(keys, start, stop, shift, here);
    __syncthreads();
    for (int digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) {
        counts[(long long)digit * gridDim.x + blockIdx.x] = here[digit];
    }
}

// A block for each digit: its counts become the sums of those before, totals[digit] that of all.
extern "C" __global__ void sort_scan(int* __restrict__ counts, int* __restrict__ totals,
    const int blocks)
{
    int* row = counts + (long long)blockIdx.x * blocks;
    int done = 0;
    for (int first = 0; first < blocks; first += blockDim.x) {
        const int i = first + threadIdx.x;
        int total;
        const int before = sum_before(i < blocks ? row[i] : 0, total);
        if (i < blocks) row[i] = done + before;
        done += total;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = done;
}

// A block has DIGITS threads here.
extern "C" __global__ void sort_move(const K* __restrict__ keys, const int* __restrict__ order,
    K* __restrict__ new_keys, int* __restrict__ new_order, const int* __restrict__ counts,
    const int* __restrict__ totals, const int n, const int size, const int shift)
{
    __shared__ int places[DIGITS / WARP][DIGITS];
    clear(places[0], DIGITS / WARP * DIGITS);
    int start = blockIdx.x * size, stop = min((int)(blockIdx.x + 1) * size, n);
    find_part(start, stop);
    int* own = places[threadIdx.x / WARP];
    count_digits(keys, start, stop, shift, own);
    int total;
    const int lower = sum_before(totals[threadIdx.x], total);
    spread(places, lower + counts[(long long)threadIdx.x * gridDim.x + blockIdx.x]);
    move_part(keys, order, start, stop, shift, own, new_keys, new_order);
}

// heads[block]: how many runs begin among the block's ids.
extern "C" __global__ void runs_count(const K* __restrict__ keys, int* __restrict__ heads,
    const int n, const int size)
{
    const int stop = min((int)(blockIdx.x + 1) * size, n);
    int count = 0;
    for (int first = blockIdx.x * size; first < stop; first += blockDim.x) {
        const int i = first + threadIdx.x;
        count += __syncthreads_count(i < stop && (i == 0 || keys[i] != keys[i - 1]));
    }
    if (threadIdx.x == 0) heads[blockIdx.x] = count;
}

// One block: heads become the sums of those before; the number of runs stays on the device.
extern "C" __global__ void runs_scan(int* __restrict__ heads, int* __restrict__ count,
    const int blocks)
{
    int done = 0;
    for (int first = 0; first < blocks; first += blockDim.x) {
        const int i = first + threadIdx.x;
        int total;
        const int before = sum_before(i < blocks ? heads[i] : 0, total);
        if (i < blocks) heads[i] = done + before;
        done += total;
    }
    if (threadIdx.x == 0) *count = done;
}

// Numbers the runs among keys[start ... stop - 1], of which `done` begin before.
__device__ __forceinline__ int number_runs(const K* keys, const int* order, const int start,
    const int stop, int done, long long* unique, int* run, int* members)
{
    for (int first = start; first < stop; first += blockDim.x) {
        const int i = first + threadIdx.x;
        const bool head = i < stop && (i == 0 || keys[i] != keys[i - 1]);
        int total;
        const int number = done + sum_before(head, total) + head - 1;
        if (i < stop) run[i] = number;
        if (head) {
            unique[number] = (long long)keys[i];
            members[number] = order[i];
        }
        done += total;
    }
    return done;
}

// unique[r]: the id of run r; members[r]: where its first member was given. run[i]: the run of the
// i-th sorted id.
extern "C" __global__ void runs_number(const K* __restrict__ keys, const int* __restrict__ order,
    const int* __restrict__ heads, long long* __restrict__ unique, int* __restrict__ run,
    int* __restrict__ members, const int n, const int size)
{
    const int start = blockIdx.x * size, stop = min(start + size, n);
    number_runs(keys, order, start, stop, heads[blockIdx.x], unique, run, members);
}

// -- one block: few ids are sorted, and their runs numbered, by one launch ----------------------------

#define SMALL_WARPS 32

// Answers in (keys, order); (more_keys, more_order) is room to work in. No count: no runs.
extern "C" __global__ void __launch_bounds__(SMALL_WARPS * WARP) sort_small(
    const GIVEN* __restrict__ ids, K* keys, int* order, K* more_keys, int* more_order,
    long long* __restrict__ unique, int* __restrict__ run, int* __restrict__ members,
    int* __restrict__ count, const int n, const int passes)
{
    __shared__ int places[SMALL_WARPS][DIGITS];
    K* from = passes % 2 ? more_keys : keys;
    K* to = passes % 2 ? keys : more_keys;
    int* from_order = passes % 2 ? more_order : order;
    int* to_order = passes % 2 ? order : more_order;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        from[i] = (K)ids[i];
        from_order[i] = i;
    }
    int start = 0, stop = n;
    find_part(start, stop);
    for (int pass = 0; pass < passes; pass++) {
        __syncthreads();  // the pass before is through with its places
        clear(places[0], SMALL_WARPS * DIGITS);
        int* own = places[threadIdx.x / WARP];
        count_digits(from, start, stop, 8 * pass, own);
        __syncthreads();
        int sum = 0, total;
        if (threadIdx.x < DIGITS) {
            for (int warp = 0; warp < SMALL_WARPS; warp++) sum += places[warp][threadIdx.x];
        }
        spread(places, sum_before(sum, total));
        move_part(from, from_order, start, stop, 8 * pass, own, to, to_order);
        K* keys_then = from;
        from = to;
        to = keys_then;
        int* order_then = from_order;
        from_order = to_order;
        to_order = order_then;
    }
    __syncthreads();
    if (count) {
        const int runs = number_runs(from, from_order, 0, n, 0, unique, run, members);
        if (threadIdx.x == 0) *count = runs;
    }
}
