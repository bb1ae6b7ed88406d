// CUDA C on a CPU, for tests: a grid's blocks run one after the other, the threads of a block as
// fibers that give way at barriers and where a warp exchanges values. `order` says which thread and
// which block comes first: what depends on it is a race.

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define __global__
#define __device__ static
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(threads)

struct Dim { unsigned x, y, z; };
static Dim gridDim, blockDim, blockIdx, threadIdx;

static inline int min(int x, int y) { return x < y ? x : y; }
static inline int atomicAdd(int* at, int x) { int old = *at; *at += x; return old; }
static inline int atomicMin(int* at, int x) { int old = *at; if (x < old) *at = x; return old; }
static inline double __longlong_as_double(long long x)
{
    double result;
    memcpy(&result, &x, sizeof result);
    return result;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

namespace shim {

enum State { FRESH, READY, AT_BARRIER, IN_WARP, DONE };

struct Fiber {
    ucontext_t context;
    jmp_buf place;
    State state;
    Dim index;
    unsigned char sent[8];  // what the warp's other threads may read
    char stack[1 << 15];
};

static const int MOST = 1024, WIDTH = 32;
static Fiber* fibers;
static int size, current, order_of_threads;
static ucontext_t home_context;
static jmp_buf home;
static char fault[200];
static void (*body)();

static void wait(State state)
{
    fibers[current].state = state;
    if (!_setjmp(fibers[current].place)) _longjmp(home, 1);
}

static void enter()
{
    body();
    fibers[current].state = DONE;
    _longjmp(home, 1);
}

static void resume(int thread)
{
    Fiber& fiber = fibers[thread];
    current = thread;
    threadIdx = fiber.index;
    if (_setjmp(home)) return;
    if (fiber.state != FRESH) {
        fiber.state = READY;
        _longjmp(fiber.place, 1);
    }
    fiber.state = READY;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = sizeof fiber.stack;
    fiber.context.uc_link = &home_context;
    makecontext(&fiber.context, enter, 0);
    setcontext(&fiber.context);
}

// True if all threads from `first` on that are not done wait for each other.
static bool all_wait(int first, int last, State state)
{
    bool some = false;
    for (int t = first; t < last; t++) {
        if (fibers[t].state == DONE) continue;
        if (fibers[t].state != state) return false;
        some = true;
    }
    return some;
}

static void release(int first, int last, State state)
{
    for (int t = first; t < last; t++) if (fibers[t].state == state) fibers[t].state = READY;
}

// One turn for each lane that need not wait; false if none was left.
static bool run_warp(int first, int last)
{
    bool moved = false;
    for (int k = 0; k < last - first; k++) {
        const int t = order_of_threads ? last - 1 - k : first + k;
        if (fibers[t].state == FRESH || fibers[t].state == READY) {
            resume(t);
            moved = true;
        }
    }
    if (all_wait(first, last, IN_WARP)) {
        release(first, last, IN_WARP);
        moved = true;
    }
    return moved && !fault[0];
}

static void run_block()
{
    for (int t = 0; t < size; t++) {
        fibers[t].state = FRESH;
        fibers[t].index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    }
    const int warps = (size + WIDTH - 1) / WIDTH;
    for (;;) {
        bool moved = false, left = false;
        for (int k = 0; k < warps; k++) {  // each as far as it can go: warps are never in step
            const int first = (order_of_threads ? warps - 1 - k : k) * WIDTH;
            while (run_warp(first, min(first + WIDTH, size))) moved = true;
            if (fault[0]) return;
        }
        for (int t = 0; t < size; t++) left |= fibers[t].state != DONE;
        if (!left) return;
        if (all_wait(0, size, AT_BARRIER)) release(0, size, AT_BARRIER);
        else if (!moved) {
            snprintf(fault, sizeof fault, "threads wait for each other at different places");
            return;
        }
    }
}

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void** args, std::index_sequence<I...>)
{
    kernel(*(A*)args[I]...);
}

template <class... A>
static const char* launch(void (*kernel)(A...), const unsigned* dims, void** args, int order,
    bool in_fibers)
{
    static void (*the_kernel)(A...);
    static void** the_args;
    the_kernel = kernel;
    the_args = args;
    fault[0] = 0;
    gridDim = {dims[0], dims[1], dims[2]};
    blockDim = {dims[3], dims[4], dims[5]};
    size = blockDim.x * blockDim.y * blockDim.z;
    if (size > MOST) return "a block of more than 1024 threads";
    order_of_threads = order;
    if (!fibers) fibers = (Fiber*)malloc(MOST * sizeof(Fiber));
    body = [] { call(the_kernel, the_args, std::index_sequence_for<A...>()); };
    const long long blocks = (long long)gridDim.x * gridDim.y * gridDim.z;
    for (long long k = 0; k < blocks && !fault[0]; k++) {
        const long long b = order ? blocks - 1 - k : k;
        blockIdx = {unsigned(b % gridDim.x), unsigned(b / gridDim.x % gridDim.y),
            unsigned(b / gridDim.x / gridDim.y)};
        if (in_fibers) {
            run_block();
            continue;
        }
        for (int k = 0; k < size; k++) {
            const unsigned t = order ? size - 1 - k : k;
            threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
            body();
        }
    }
    return fault;
}

// All lanes of a warp hand over a value, and then each reads what it likes.
template <class A> static const A* exchange(unsigned mask, A value)
{
    static A values[WIDTH];
    const int lane = current % WIDTH, first = current - lane;
    memcpy(fibers[current].sent, &value, sizeof value);
    wait(IN_WARP);
    unsigned there = 0;
    for (int l = 0; l < WIDTH && first + l < size; l++) {
        if (fibers[first + l].state != DONE) there |= 1u << l;
        memcpy(&values[l], fibers[first + l].sent, sizeof value);
    }
    if (there != mask) snprintf(fault, sizeof fault, "lanes %x, not those of the mask", there);
    return values;
}

}  // namespace shim

static inline void __syncthreads() { shim::wait(shim::AT_BARRIER); }
static inline void __syncwarp() { shim::wait(shim::IN_WARP); }

static inline int __syncthreads_count(int predicate)
{
    static int count;
    __syncthreads();
    count = 0;
    __syncthreads();
    count += predicate != 0;
    __syncthreads();
    return count;
}

template <class A> static inline A __shfl_xor_sync(unsigned mask, A x, int lanes)
{
    const A* values = shim::exchange(mask, x);
    const A result = values[shim::current % shim::WIDTH ^ lanes];
    __syncwarp();
    return result;
}

template <class A> static inline A __shfl_up_sync(unsigned mask, A x, int lanes)
{
    const A* values = shim::exchange(mask, x);
    const int lane = shim::current % shim::WIDTH;
    const A result = values[lane >= lanes ? lane - lanes : lane];
    __syncwarp();
    return result;
}

template <class A> static inline unsigned __match_any_sync(unsigned mask, A x)
{
    const A* values = shim::exchange(mask, x);
    unsigned equal = 0;
    for (int lane = 0; lane < shim::WIDTH; lane++) equal |= unsigned(values[lane] == x) << lane;
    __syncwarp();
    return equal;
}
