//! GPU memory, over the stand-ins for libcuda and libcufile (tests/fake_cuda): found and loaded as the real ones are.

mod cufile;
mod marks;
mod moves;
mod rig;
