// Runs native/copy_pieces.cu on the CPU, one thread after another, over every alignment and many lengths: for machines
// without a GPU. It proves which bytes are written and with what, nothing of memory models or speed.
//
//   clang++ -std=c++17 -O1 -fsanitize=undefined -fsanitize-trap=all benches/gpu/kernel_check.cpp -o kernel_check && ./kernel_check

#include <stdio.h>
#include <string.h>

#include <vector>

static unsigned thread_x, threads_x, block_x, block_y, grid_x, grid_y;
static unsigned __nvvm_read_ptx_sreg_tid_x() { return thread_x; }
static unsigned __nvvm_read_ptx_sreg_ntid_x() { return threads_x; }
static unsigned __nvvm_read_ptx_sreg_ctaid_x() { return block_x; }
static unsigned __nvvm_read_ptx_sreg_ctaid_y() { return block_y; }
static unsigned __nvvm_read_ptx_sreg_nctaid_x() { return grid_x; }
static unsigned __nvvm_read_ptx_sreg_nctaid_y() { return grid_y; }
static void __syncthreads() {}

#define KERNEL static
#define DEVICE static
#define SHARED
#include "../../native/copy_pieces.cu"

// Threads one after another: right as long as a block of several threads walks through one piece only, since the first
// thread alone reads the table. A grid smaller than the table is run with blocks of one thread.
static void launch(const std::vector<Piece> &table, unsigned x, unsigned y, unsigned threads) {
    grid_x = x, grid_y = y, threads_x = threads;
    for (block_x = 0; block_x < grid_x; block_x++) {
        for (block_y = 0; block_y < grid_y; block_y++) {
            for (thread_x = 0; thread_x < threads_x; thread_x++) {
                fullbore_copy_pieces(table.data(), (u32)table.size());
            }
        }
    }
}

enum { GUARD = 64 };

// Pieces of `len` bytes, `apart` by apart in the source and in turned order in the destination.
static bool right(unsigned count, u64 len, unsigned from, unsigned to, unsigned x, unsigned y, unsigned threads) {
    u64 room = (len + 15) / 16 * 16 + GUARD;
    std::vector<u8> source(count * room + GUARD), got(count * room + GUARD, 0xa5);
    u8 *base_from = source.data() + (16 - (u64)source.data() % 16) % 16, *base_to = got.data() + (16 - (u64)got.data() % 16) % 16;
    u32 value = 12345;
    for (u8 &byte : source) {
        byte = (u8)((value = value * 1103515245 + 12345) >> 16);
    }
    std::vector<u8> want(got);
    std::vector<Piece> table(count);
    for (unsigned n = 0; n < count; n++) {
        u8 *src = base_from + n * room + from, *dst = base_to + (count - 1 - n) * room + to;
        table[n] = {(u64)dst, (u64)src, len};
        if (len > 0) {
            memcpy(want.data() + (dst - got.data()), src, len);
        }
    }
    launch(table, x, y, threads);
    if (got == want) {
        return true;
    }
    printf("WRONG: %u pieces of %llu, source +%u, destination +%u, grid %u x %u, block %u\n", count, len, from, to, x, y, threads);
    return false;
}

int main() {
    const u64 lengths[] = {0, 1, 3, 7, 15, 16, 17, 31, 63, 64, 65, 255, 1000, 4096, 4111, 16384, 20000};
    unsigned wrong = 0, done = 0;
    for (u64 len : lengths) {
        for (unsigned from = 0; from < 16; from++) {
            for (unsigned to = 0; to < 16; to++, done++) {
                wrong += !right(2, len, from, to, 2, 1, 32);
            }
        }
        for (unsigned y = 1; y <= 4; y++, done += 2) {
            wrong += !right(3, len, 0, 0, 3, y, 256);
            wrong += !right(7, len, 5, 1, 3, y, 1); // fewer blocks than pieces
        }
    }
    printf("%u cases, %u wrong\n", done, wrong);
    return wrong != 0;
}
