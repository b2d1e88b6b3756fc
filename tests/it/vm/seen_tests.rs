//! The reading of traces, on what fio's passthrough left in the tracer of both kernels (cut, no line changed).

use super::seen::{
    Seen, by_queue, extents, head, most_objects, most_outstanding, outstanding, parse, share_at,
};
use super::trace::lost_in;

const NEWEST: &str = include_str!("recorded/7.3.txt");
const OLD: &str = include_str!("recorded/6.1.txt");

#[test]
fn commands_are_joined_to_what_was_submitted() {
    let seen = parse(NEWEST);
    assert_eq!(seen.len(), 8, "the admin queue's command is left out");
    let first = Seen {
        user_data: Some(0x5645_c60a_4c40),
        disk: "nvme1n1".into(),
        nsid: 1,
        qid: 2,
        cpu: 1,
        opcode: "read".into(),
        slba: 0,
        blocks: 32,
        setup_ns: 72_217_027_000,
        complete_ns: Some(72_227_050_000),
        status: Some(0),
    };
    assert_eq!(seen[0], first, "its submission was the one before the last");
    // In the recorded completions of io_uring the user_data come in the order of the driver's completions.
    let mut by_end: Vec<_> = seen.iter().collect();
    by_end.sort_by_key(|command| command.complete_ns);
    let reaped = NEWEST.lines().filter(|line| line.contains("io_uring_complete"));
    let reaped: Vec<_> =
        reaped.map(|line| line.split("user_data 0x").nth(1).unwrap()[..12].to_string()).collect();
    let ended: Vec<_> = by_end.iter().map(|command| format!("{:x}", command.user_data.unwrap())).collect();
    assert_eq!(ended, reaped);
}

#[test]
fn kernel_6_1_sends_batches_last_one_first() {
    let joined: Vec<_> = parse(OLD).iter().map(|c| (c.slba, c.user_data.unwrap() as u16, c.status)).collect();
    let ok = Some(0);
    let expected = [
        (24, 0xf980, ok),
        (16, 0xfb40, ok),
        (8, 0xfd00, ok),
        (0, 0xfec0, ok),
        (136, 0xfd00, ok),
        (128, 0xfec0, ok),
    ];
    assert_eq!(joined, expected, "fio's buffers go down as its offsets go up");
}

/// The second submission sends the first one's command off, and its own goes with the end of the enter.
#[test]
fn what_a_later_submission_sends_off_is_a_batch_of_its_own() {
    let submit = |user_data| {
        format!(
            " x-7 [000] ..... 1.000001: io_uring_submit_sqe: ring 1, req 2, user_data {user_data}, opcode URING_CMD, flags 0x1, sq_thread 0\n"
        )
    };
    let set_up = |block| {
        format!(
            " x-7 [000] ..... 1.000001: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=1, cmdid={block}, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_read slba={block}, len=0, ctrl=0x0, dsmgmt=0, reftag=0)\n"
        )
    };
    let plug = " x-7 [000] ..... 1.000001: block_plug: [x]\n";
    let text = [submit("0x50"), plug.into(), submit("0x51"), set_up(0), plug.into(), set_up(1)].concat();
    let joined: Vec<_> = parse(&text).iter().map(|c| (c.slba, c.user_data)).collect();
    assert_eq!(joined, [(0, Some(0x50)), (1, Some(0x51))]);
}

#[test]
fn what_cannot_be_joined_is_not_guessed() {
    let text = "a [x] b-7     [000] .....     1.000001: io_uring_submit_req: ring 1, req 2, user_data 0x700000001, opcode URING_CMD, flags 0x1, sq_thread 0
 a [x] b-7     [000] .....     1.000001: io_uring_submit_req: ring 1, req 3, user_data 0xffffffffffffffff, opcode POLL_ADD, flags 0x1, sq_thread 0
 a [x] b-7     [000] .....     1.000001: io_uring_queue_async_work: ring 1, request 2, user_data 0x700000001, opcode URING_CMD, flags 0x1, hashed queue, work 3
 iou-wrk-7-9   [001] .....     1.000002: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=1, cmdid=5, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_flush cdw10=00 00)
 <idle>-0      [001] d.h..     1.000002: nvme_complete_rq: nvme0: disk=nvme0n1, qid=1, cmdid=4, res=0x0, retries=0, flags=0x2, status=0x0
 <idle>-0      [001] d.h..     1.000002: nvme_complete_rq: nvme0: disk=nvme0n1, qid=1, cmdid=5, res=0x0, retries=0, flags=0x2, status=0x281";
    let seen = parse(text);
    assert_eq!(seen.len(), 1);
    let command = &seen[0];
    assert_eq!((command.user_data, command.trace_id()), (None, None));
    assert_eq!((command.opcode.as_str(), command.blocks, command.status), ("flush", 0, Some(0x281)));
    assert!(command.complete_ns > Some(command.setup_ns), "one microsecond, yet an order");
}

#[test]
fn one_name_for_a_namespace_whatever_its_path() {
    assert_eq!(head("nvme1c10n2"), "nvme1n2");
    assert_eq!(head("nvme12n3"), "nvme12n3");
    assert_eq!(head("sda"), "sda");
}

/// A read of one block of object `trace` on queue `qid`, from `from` to `to`.
fn read(trace: u64, qid: u32, slba: u64, (from, to): (u64, u64)) -> Seen {
    Seen {
        user_data: Some(trace << 32 | slba),
        disk: "nvme0n1".into(),
        nsid: 1,
        qid,
        cpu: 0,
        opcode: "read".into(),
        slba,
        blocks: 1,
        setup_ns: from,
        complete_ns: Some(to),
        status: Some(0),
    }
}

#[test]
fn outstanding_is_a_step_function() {
    let mut commands = vec![read(1, 1, 0, (10, 40)), read(1, 1, 1, (20, 30)), read(2, 2, 9, (50, 60))];
    assert_eq!(outstanding(&commands), [(10, 1), (20, 2), (30, 1), (40, 0), (50, 1), (60, 0)]);
    assert_eq!(most_outstanding(&commands), 2);
    assert_eq!(most_objects(&commands), 1, "the second object came after the first");
    assert_eq!(by_queue(&commands), [(1, 2), (2, 1)].into());
    assert_eq!(extents(&commands, 1), std::slice::from_ref(&(0..2)));
    commands[2].setup_ns = 35;
    assert_eq!(most_objects(&commands), 2);
    commands[0].complete_ns = None;
    assert_eq!(outstanding(&commands).last(), Some(&(60, 1)), "what did not end stays outstanding");
}

#[test]
#[should_panic(expected = "asked for twice")]
fn a_block_asked_for_twice_is_seen() {
    extents(&[read(1, 1, 5, (0, 1)), read(1, 2, 5, (2, 3))], 1);
}

#[test]
fn the_share_is_of_the_time_between_first_fill_and_tail() {
    // Two at once from 10; at 30 one ended, and the next came at 40; the queue's last command came at 60.
    let commands = [(0, 30), (10, 50), (40, 70), (50, 70), (60, 90)].map(|times| read(1, 1, times.0, times));
    assert_eq!(share_at(&commands, 2), 0.8, "10..60 without 30..40");
    assert_eq!(share_at(&commands, 4), 0.0, "never filled");
    // Another queue's last command came at 20: the tail begins there.
    let mut with_other = commands.to_vec();
    with_other.push(read(1, 2, 99, (20, 95)));
    assert_eq!(share_at(&with_other, 2), 1.0);
}

#[test]
fn lost_events_are_counted() {
    let stats = "entries: 10\noverrun: 2\ncommit overrun: 1\nbytes: 560\ndropped events: 4\nread events: 0\n";
    assert_eq!(lost_in(stats), 7);
}
