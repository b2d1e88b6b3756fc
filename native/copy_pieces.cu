// Moves pieces of GPU memory: a scatter from device staging to where the pieces belong, or the gather back.
//
// `table` lists the pieces. It lies in pinned host memory (the kernel reads each entry once a block, over the link) and may
// be written again once the launch has ended. Pieces do not overlap one another, nor a piece's source its destination. Any
// alignment and length is right; it is fast where source and destination are aligned alike (16 bytes at a time).
//
// Launch: block (256, 1, 1), grid (count, slices, 1). slices = 1 for 128 pieces or more; for fewer, as many as make
// count * slices about 256, so that a GPU of 132 multiprocessors is full. Counts above the grid are walked through in
// strides, so that a smaller grid.x is right too. For 16 to 64 KiB pieces in 8 MiB that is 128 to 512 blocks, each of whose
// threads moves 4 to 16 vectors, four loads at a time.
//
// Made into copy_pieces.ptx by ptx.sh with Debian's clang: there is no CUDA toolkit, hence the few names below.

#ifndef KERNEL // benches/gpu/kernel_check.cpp runs this on a CPU
#define KERNEL extern "C" __attribute__((global, used))
#define DEVICE static __attribute__((device, always_inline))
#define SHARED __attribute__((shared))
#endif

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

struct Piece {
    u64 dst, src, len;
};

// Elements of `T` from `at` on, every `step`-th, up to `count`. Loads first, then stores: more of them are in flight.
template <typename T> DEVICE void stride(T *dst, const T *src, u64 at, u64 step, u64 count) {
    for (; at + 3 * step < count; at += 4 * step) {
        T a = src[at], b = src[at + step], c = src[at + 2 * step], d = src[at + 3 * step];
        dst[at] = a;
        dst[at + step] = b;
        dst[at + 2 * step] = c;
        dst[at + 3 * step] = d;
    }
    for (; at < count; at += step) {
        dst[at] = src[at];
    }
}

// The bytes before the first aligned element, the elements, the bytes behind the last. Source and destination must be
// aligned alike, for `T`.
template <typename T> DEVICE void copy(const Piece &piece, u64 at, u64 step) {
    u64 head = -piece.dst & (sizeof(T) - 1);
    head = head < piece.len ? head : piece.len;
    u64 count = (piece.len - head) / sizeof(T), body = head + count * sizeof(T);
    u8 *dst = (u8 *)piece.dst;
    const u8 *src = (const u8 *)piece.src;
    stride<u8>(dst, src, at, step, head);
    stride<T>((T *)(dst + head), (const T *)(src + head), at, step, count);
    stride<u8>(dst + body, src + body, at, step, piece.len - body);
}

KERNEL void fullbore_copy_pieces(const Piece *table, u32 count) {
    SHARED static Piece shared;
    u32 thread = __nvvm_read_ptx_sreg_tid_x(), threads = __nvvm_read_ptx_sreg_ntid_x();
    u64 at = (u64)__nvvm_read_ptx_sreg_ctaid_y() * threads + thread;
    u64 step = (u64)__nvvm_read_ptx_sreg_nctaid_y() * threads;
    for (u64 number = __nvvm_read_ptx_sreg_ctaid_x(); number < count; number += __nvvm_read_ptx_sreg_nctaid_x()) {
        __syncthreads(); // nobody reads the last piece any more
        if (thread == 0) {
            shared = table[number];
        }
        __syncthreads();
        Piece piece = shared;
        u64 odd = piece.dst ^ piece.src;
        if ((odd & 15) == 0) {
            copy<u32x4>(piece, at, step);
        } else if ((odd & 7) == 0) {
            copy<u64>(piece, at, step);
        } else if ((odd & 3) == 0) {
            copy<u32>(piece, at, step);
        } else {
            copy<u8>(piece, at, step);
        }
    }
}
