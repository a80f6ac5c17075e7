"""One kernel source for the two backends that compile it at run time (NVRTC, hipRTC)."""

DENSE = r"""
extern "C" __global__ void dense(const float* x, const float* w, const float* b, float* y,
                                 int n, int k, int m, int relu) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= m) return;
    float sum = b[col];
    for (int i = 0; i < k; ++i) sum += x[row * k + i] * w[i * m + col];
    y[row * m + col] = relu && sum < 0.0f ? 0.0f : sum;
}
"""

BLOCK = 16


def grid(n: int, m: int) -> tuple[int, int]:
    """Blocks in x and y for an (n, m) result."""
    return -(-m // BLOCK), -(-n // BLOCK)
