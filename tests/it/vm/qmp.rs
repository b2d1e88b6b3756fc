//! Talking to QEMU from inside: drives stall, are pulled and plugged in again.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

const PORT: &str = "/dev/virtio-ports/qmp";

/// The machine's monitor. One at a time: tests in the machine run one by one.
#[derive(Debug)]
pub struct Qmp {
    port: File,
    /// Events that came while an answer was waited for.
    events: Vec<Value>,
}

impl Qmp {
    pub fn open() -> Qmp {
        let port = OpenOptions::new().read(true).write(true).open(PORT).expect("QEMU's port");
        Qmp { port, events: Vec::new() }
    }

    /// The answer to a command.
    ///
    /// # Panics
    /// If QEMU refuses it.
    pub fn ask(&mut self, name: &str, arguments: Value) -> Value {
        let line = format!("{}\n", json!({"execute": name, "arguments": arguments}));
        self.port.write_all(line.as_bytes()).expect("QEMU listens");
        loop {
            let answer = self.line();
            if answer.get("event").is_some() {
                self.events.push(answer);
                continue;
            }
            assert!(answer.get("return").is_some(), "QEMU refuses {name}: {answer}");
            return answer["return"].clone();
        }
    }

    /// Waits for an event of that name about `device`; the test's own limit bounds the wait.
    pub fn wait_for(&mut self, event: &str, device: &str) {
        let is_it = |value: &Value| value["event"] == event && value["data"]["device"] == device;
        while !self.events.iter().any(is_it) {
            let line = self.line();
            self.events.push(line);
        }
        self.events.clear();
    }

    /// From now on the drive takes `bytes_per_second`; 1 is: nothing any more. 0 is: all it can.
    pub fn throttle(&mut self, id: &str, bytes_per_second: u64) {
        let limits = json!({"id": id, "bps": bytes_per_second, "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0});
        self.ask("block_set_io_throttle", limits);
    }

    /// Byte by byte: what comes behind a line is the next reader's.
    fn line(&mut self) -> Value {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            let count = self.port.read(&mut byte).expect("QEMU answers");
            assert_eq!(count, 1, "QEMU closed its port");
            if byte[0] == b'\n' {
                break;
            }
            line.push(byte[0]);
        }
        serde_json::from_slice(&line).expect("QEMU speaks JSON")
    }
}

/// Wakes a stalled drive also when its test fails: the machine's other tests go on.
#[derive(Debug)]
pub struct Stalled<'a>(&'a str);

impl Stalled<'_> {
    /// After what is in its queue now QEMU gives the drive `id` nothing.
    pub fn now(id: &str) -> Stalled<'_> {
        Qmp::open().throttle(id, 1);
        Stalled(id)
    }
}

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        Qmp::open().throttle(self.0, 0);
    }
}
