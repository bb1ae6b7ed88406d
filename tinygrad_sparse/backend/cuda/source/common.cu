// What every kernel uses. T: the tables' floats. VEC: neighbours that move together, 16 bytes.

#define FULL 0xffffffffu
#define WARP 32
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000LL)

struct alignas(sizeof(T) * VEC) Pack { T x[VEC]; };

__device__ __forceinline__ Pack load(const T* at) { return *(const Pack*)at; }
__device__ __forceinline__ void store(T* at, const Pack pack) { *(Pack*)at = pack; }

__device__ __forceinline__ Pack zeros()
{
    Pack pack;
    #pragma unroll
    for (int v = 0; v < VEC; v++) pack.x[v] = 0;
    return pack;
}

// What a sum begins with: 0 would make 0 of a sum of -0 alone.
__device__ __forceinline__ Pack nothing()
{
    Pack pack;
    #pragma unroll
    for (int v = 0; v < VEC; v++) pack.x[v] = -(T)0;
    return pack;
}

__device__ __forceinline__ void add(Pack& sum, const Pack more)
{
    #pragma unroll
    for (int v = 0; v < VEC; v++) sum.x[v] += more.x[v];
}

// NumPy's meaning where C has another, or none: NaN comes out of maximum, sign, minimum.
template <class A> __device__ __forceinline__ A np_abs(A x) { return x < 0 ? -x : x == 0 ? 0 : x; }
template <class A> __device__ __forceinline__ A np_sign(A x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
}
template <class A> __device__ __forceinline__ A np_maximum(A x, A y)
{
    return x >= y || x != x ? x : y;
}
template <class A> __device__ __forceinline__ A np_minimum(A x, A y)
{
    return x <= y || x != x ? x : y;
}
template <class A> __device__ __forceinline__ bool np_isnan(A x) { return x != x; }
template <class A> __device__ __forceinline__ bool np_isinf(A x) { return x == x && x - x != 0; }
template <class A> __device__ __forceinline__ bool np_isfinite(A x) { return x - x == 0; }

template <class A> __device__ __forceinline__ A warp_sum(A x)
{
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

// The sum of x over the threads before this one; `total` of all. Each thread of a block calls it.
__device__ __forceinline__ int sum_before(const int x, int& total)
{
    __shared__ int sums[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int upto = x;
    for (int step = 1; step < WARP; step *= 2) {
        const int other = __shfl_up_sync(FULL, upto, step);
        if (lane >= step) upto += other;
    }
    if (lane == WARP - 1) sums[warp] = upto;
    __syncthreads();
    int before = 0;
    total = 0;
    for (int w = 0; w < (int)blockDim.x / WARP; w++) {
        if (w < warp) before += sums[w];
        total += sums[w];
    }
    __syncthreads();  // sums may be written again
    return before + upto - x;
}
