//! GPU memory, over the stand-ins for libcuda and libcufile (tests/fake_cuda): found and loaded as the real ones are.

mod cpu;
mod cufile;
mod edges;
mod faults;
mod hangs;
mod marks;
mod moves;
mod order;
mod pointers;
mod random;
mod rig;
mod several;
mod storage;
