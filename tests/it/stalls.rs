//! Devices that do not answer, files that end, disks that are full: one completion each, in time, that tells the truth.

mod ends;
mod stuck;
