//! The workers: every job is answered once, or told as left behind.

use super::rig::{LEN, Library, Rig, child, pattern, until};
use super::*;
use crate::queue::cufile::workers::Left;
use crate::target::Op;
use nix::sys::signal::{SigSet, Signal};
use std::sync::atomic::Ordering;

#[test]
fn bytes_go_both_ways() {
    child("workers::bytes_go_both_ways", Library::Whole, &[("FAKE_CUFILE_MODE", "p2pdma")], || {
        let rig = Rig::new(2);
        let part = LEN / 16;
        (0..16).for_each(|i| rig.read((i * part) as u64, part, i as u64));
        let mut users: Vec<u64> = (0..16)
            .map(|_| rig.answer())
            .inspect(|d| assert_eq!(d.result, Ok(part)))
            .map(|d| d.user)
            .collect();
        users.sort_unstable();
        assert_eq!(users, (0..16).collect::<Vec<_>>());
        assert!(rig.memory.bytes() == pattern(LEN), "what came is not what the file has");
        until("the wakes", || rig.wakes.load(Ordering::SeqCst) == 16);
        let prepared = rig.prepared.load(Ordering::SeqCst);
        assert!((1..=2).contains(&prepared), "{prepared} threads for two at most");

        let mut turned = pattern(LEN);
        turned.reverse();
        rig.memory.fill(&turned);
        rig.workers.submit(rig.job(Op::Write, 4096, LEN - 4096, 99)).unwrap();
        assert_eq!(rig.answer(), Done { user: 99, result: Ok(LEN - 4096) });
        let file = std::fs::read(&rig.path).unwrap();
        assert!(file[4096..] == turned[4096..] && file[..4096] == pattern(LEN)[..4096]);

        // What is wrong is handed back, with its memory.
        for job in [
            rig.job(Op::Read, LEN as u64 - 4096, 8192, 1),
            rig.job(Op::Read, u64::MAX, 4096, 1),
            rig.job(Op::Flush, 0, 4096, 1),
            Job { file_offset: i64::MAX as u64, ..rig.job(Op::Read, 0, 4096, 1) },
        ] {
            assert_eq!(rig.workers.submit(job).unwrap_err().code(), None);
        }
        let mask =
            rig.workers.within(Duration::from_secs(20), || SigSet::thread_get_mask().unwrap()).unwrap();
        assert!(mask.contains(Signal::SIGTERM) && !mask.contains(Signal::SIGSEGV), "signals reach a worker");
        // The workers hold nothing of what they have answered.
        drop((rig.handle, rig.buffer, rig.memory));
        let deregistered = ["cuFileHandleDeregister", "cuFileBufDeregister"].map(|f| rig.fake.count(f));
        assert_eq!((deregistered, rig.freed.load(Ordering::SeqCst)), ([1, 1], 1));
        assert_eq!(rig.fake.violations(), "");
    });
}

#[test]
fn what_the_library_answers_is_told_apart() {
    child("workers::what_the_library_answers_is_told_apart", Library::Whole, &[], || {
        let rig = Rig::new(1);
        let ask = |fault: &str, op| {
            rig.fake.order(fault, 0, 1);
            rig.workers.submit(rig.job(op, 0, 64 << 10, 5)).unwrap();
            rig.answer().result
        };
        assert_eq!(ask("read=5030", Op::Read).unwrap_err().name(), "CU_FILE_INTERNAL_ERROR");
        assert!(ask("read=5043", Op::Read).unwrap_err().retryable());
        assert_eq!(ask("write=5011", Op::Write).unwrap_err().code(), Some(5011));
        assert_eq!(ask("errno", Op::Read).unwrap_err().errno(), Some(libc::EIO));
        assert_eq!(ask("errno=28", Op::Write).unwrap_err().errno(), Some(libc::ENOSPC));
        assert!(ask("toomuch", Op::Read).unwrap_err().to_string().contains("more than was asked"));
        let calls = rig.fake.count("cuFileRead");
        assert_eq!(ask("short", Op::Read), Ok(64 << 10), "it goes on after a short one");
        assert_eq!(rig.fake.count("cuFileRead"), calls + 2);
        assert!(rig.memory.bytes()[..64 << 10] == pattern(LEN)[..64 << 10]);
        // The end of the file, aligned and not.
        for end in [LEN as u64 - 8192, LEN as u64 - 8192 - 100] {
            std::fs::File::options().write(true).open(&rig.path).unwrap().set_len(end).unwrap();
            rig.read(LEN as u64 - 16384, 16384, 6);
            assert_eq!(rig.answer().result, Ok((end - (LEN as u64 - 16384)) as usize));
        }
        assert_eq!(rig.fake.violations(), "");
    });
}

#[test]
fn a_hanging_call_holds_its_thread_alone_and_is_answered_late() {
    child("workers::a_hanging_call_holds_its_thread_alone_and_is_answered_late", Library::Whole, &[], || {
        let rig = Rig::new(2);
        rig.fake.order("hang", 0, 1);
        rig.read(0, 4096, 7);
        until("the hanging job", || rig.fake.count("in flight") == 1);
        for user in 0..50 {
            rig.read(4096, 4096, user);
            assert_eq!(rig.answer().user, user);
        }
        assert_eq!(rig.prepared.load(Ordering::SeqCst), 2);
        rig.fake.release();
        assert_eq!(rig.answer(), Done { user: 7, result: Ok(4096) });
        assert_eq!(rig.fake.violations(), "");
    });
}

#[test]
fn submit_never_waits_and_what_was_not_begun_can_be_taken_back() {
    child(
        "workers::submit_never_waits_and_what_was_not_begun_can_be_taken_back",
        Library::Whole,
        &[],
        || {
            let rig = Rig::new(2);
            rig.fake.order("hang", 0, 2);
            let began = Instant::now();
            (0..100).for_each(|user| rig.read(0, 4096, user));
            assert!(began.elapsed() < Duration::from_secs(5));
            until("both threads", || rig.fake.count("in flight") == 2);
            let mut users: Vec<u64> =
                rig.workers.revoke(|user| user % 2 == 1).iter().map(|job| job.user).collect();
            users.sort_unstable();
            assert!(rig.done.is_empty());
            rig.fake.release();
            until("the rest", || users.len() + rig.done.len() == 100);
            while let Some(done) = rig.done.pop() {
                users.push(done.user);
            }
            users.sort_unstable();
            assert_eq!(users, (0..100).collect::<Vec<_>>());
        },
    );
}

#[test]
fn shutdown_leaves_a_hanging_call_what_it_holds() {
    child("workers::shutdown_leaves_a_hanging_call_what_it_holds", Library::Whole, &[], || {
        let mut rig = Rig::new(1);
        rig.fake.order("hang", 0, 1);
        rig.read(0, 4096, 7);
        until("the hanging job", || rig.fake.count("in flight") == 1);
        rig.read(4096, 4096, 8);
        let spare = Workers::new(&rig.cufile, 1, Arc::default(), Box::new(|| ()), Box::new(|| ()));
        let workers = std::mem::replace(&mut rig.workers, spare);
        let began = Instant::now();
        let left = workers.shutdown(Duration::from_millis(200));
        assert_eq!(left, Left { jobs: vec![7], threads: 1 });
        assert!(began.elapsed() < Duration::from_secs(5));
        let turned_away = rig.done.pop().unwrap();
        assert_eq!((turned_away.user, turned_away.result.is_err()), (8, true));
        assert_eq!(rig.wakes.load(Ordering::SeqCst), 1);

        // We let go of everything; the call that hangs keeps it, also when it comes back.
        let (fake, done, freed, wakes) = (&rig.fake, rig.done.clone(), rig.freed.clone(), rig.wakes.clone());
        let (handle, buffer, memory) = (rig.handle, rig.buffer, rig.memory);
        drop((handle, buffer, memory, rig.workers));
        let deregistered = || fake.count("cuFileBufDeregister") + fake.count("cuFileHandleDeregister");
        assert_eq!((deregistered(), freed.load(Ordering::SeqCst)), (0, 0));
        fake.release();
        until("the end of the call", || fake.count("in flight") == 0);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((deregistered(), freed.load(Ordering::SeqCst)), (0, 0));
        assert!(
            done.is_empty() && wakes.load(Ordering::SeqCst) == 1,
            "it was told as left behind, and answered"
        );
        assert_eq!(fake.violations(), "");
    });
}

/// Its I/O has ended, and the worker, which has the last of the handle, hangs letting go of it.
#[test]
fn a_job_told_as_left_behind_is_not_answered_after() {
    child("workers::a_job_told_as_left_behind_is_not_answered_after", Library::Whole, &[], || {
        let rig = Rig::new(1);
        rig.fake.order("deregister_hang", 0, 1);
        rig.fake.order("hang", 0, 1);
        rig.read(0, 4096, 7);
        until("the job", || rig.fake.count("in flight") == 1);
        let Rig { handle, workers, done, fake, .. } = rig;
        drop(handle);
        fake.release();
        until("the deregistration", || fake.count("cuFileHandleDeregister") == 1);
        assert_eq!(workers.shutdown(Duration::from_millis(100)), Left { jobs: vec![7], threads: 1 });
        fake.release();
        std::thread::sleep(Duration::from_millis(200));
        assert!(done.is_empty(), "it was told as left behind, and answered");
    });
}

#[test]
fn each_job_is_answered_once_whatever_fails() {
    child("workers::each_job_is_answered_once_whatever_fails", Library::Whole, &[], || {
        let mut rig = Rig::new(4);
        let faults = ["read=5030", "read=5043", "short", "errno", "toomuch"];
        for (n, fault) in (0..40).zip(faults.iter().cycle()) {
            rig.fake.order(fault, n * 7, 3);
        }
        const JOBS: u64 = 2000;
        // However late this thread is: not all of them are begun when the end comes.
        rig.fake.order("hang", JOBS / 2 + 100, 4);
        for user in 0..JOBS {
            rig.read(user % 200 * 4096, 8192, user);
        }
        let spare = Workers::new(&rig.cufile, 1, Arc::default(), Box::new(|| ()), Box::new(|| ()));
        until("half of them", || rig.done.len() as u64 > JOBS / 2);
        let workers = std::mem::replace(&mut rig.workers, spare);
        let left = std::thread::scope(|scope| {
            let ending = scope.spawn(|| workers.shutdown(Duration::from_secs(20)));
            // What was begun hangs until what was not is turned away.
            until("those that are turned away", || rig.done.len() as u64 > JOBS * 3 / 4);
            until("the end", || {
                rig.fake.release();
                ending.is_finished()
            });
            ending.join().unwrap()
        });
        assert_eq!(left, Left::default());
        let mut answers: Vec<Done> = std::iter::from_fn(|| rig.done.pop()).collect();
        answers.sort_unstable_by_key(|done| done.user);
        assert!(answers.iter().map(|done| done.user).eq(0..JOBS), "{} answers", answers.len());
        let text = |done: &Done| done.result.err().map(|error| error.to_string()).unwrap_or_default();
        for fault in ["(5030)", "(5043)", "os error 5", "more than was asked", "shut down"] {
            assert!(answers.iter().any(|done| text(done).contains(fault)), "{fault} did not strike");
        }
        assert_eq!((rig.fake.count("in flight"), rig.fake.violations()), (0, String::new()));
    });
}

#[test]
fn a_panic_of_others_answers_the_job() {
    child("workers::a_panic_of_others_answers_the_job", Library::Whole, &[], || {
        let rig = Rig::new(1);
        let workers = Workers::new(
            &rig.cufile,
            1,
            rig.done.clone(),
            Box::new(|| panic!("a wake that panics")),
            Box::new(|| panic!("a preparation that panics")),
        );
        for user in 0..3 {
            workers.submit(rig.job(Op::Read, 0, 4096, user)).unwrap();
            let done = rig.answer();
            assert!(done.user == user && done.result.unwrap_err().to_string().contains("preparation"));
        }
        assert_eq!(workers.shutdown(Duration::from_secs(20)), Left::default());
    });
}
