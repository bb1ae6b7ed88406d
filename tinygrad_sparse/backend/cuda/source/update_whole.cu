// A formula that sums over rows: a warp for each row, and the rows are each there once. What it is
// given is what the update_rows of update.cu is given.

extern "C" __global__ void update_rows(ARRAYS, const I* __restrict__ rows,
    const long long* __restrict__ places, const int* __restrict__ members,
    const T* __restrict__ gradients, const int* __restrict__ count, const long long n,
    const int d SETTINGS)
{
    const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= (count ? *count : n)) return;
    const long long row = rows ? (long long)rows[i] : i;
    const long long place = places ? places[members ? members[i] : i] : row;
    apply_row(ARRAY_NAMES, gradients, row, place, i, d, threadIdx.x SETTING_NAMES);
}
