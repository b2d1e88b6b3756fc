use super::super::sample::{cpus, machine, process, refusal};
use super::super::{Level, worst};
use super::*;
use crate::doctor::facts::Cgroup;
use fullbore::ErrorKind;

#[track_caller]
fn one(findings: &[Finding], level: Level, text: &str, remedy: &str) {
    let hit = |it: &&Finding| {
        it.level == level
            && it.text.contains(text)
            && it.remedy.as_deref().unwrap_or_default().contains(remedy)
    };
    assert!(findings.iter().any(|it| hit(&it)), "no {level:?} with {text:?} and {remedy:?} in {findings:#?}");
}

fn with_ring_errno(errno: i32) -> Machine {
    let mut machine = machine();
    machine.features.truncate(1);
    machine.features[0].errno = Some(errno);
    machine.no_engine = Some(refusal(errno, ErrorKind::Permission));
    machine
}

#[test]
fn rings_that_are_refused_are_broken_for_the_cause_that_can_be_told() {
    let nobody = Process { capabilities: 0, uid: 1000, ..process() };
    let filtered = Process { seccomp: Some(2), ..nobody.clone() };
    let off = |value| Process { io_uring_disabled: Some(value), ..filtered.clone() };
    let member = Process { io_uring_group: Some(7), groups: vec![7], ..off(1) };
    for (errno, process, text, remedy) in [
        (libc::EPERM, filtered.clone(), "seccomp", "--security-opt seccomp="),
        (libc::ENOSYS, filtered.clone(), "seccomp", "io_uring_setup"),
        (libc::ENOSYS, nobody.clone(), "this kernel has none", "5.19"),
        (libc::EPERM, off(2), "kernel.io_uring_disabled is 2", "sysctl -w kernel.io_uring_disabled=0"),
        (libc::EPERM, off(1), "kernel.io_uring_disabled is 1", "kernel.io_uring_group=$(id -g)"),
        (libc::EPERM, member, "seccomp", "--security-opt"),
        (libc::EPERM, nobody.clone(), "security module", "dmesg"),
        (libc::ENOMEM, nobody.clone(), "memlock", "ulimit -l"),
        (libc::EMFILE, nobody.clone(), "descriptor", "ulimit -n"),
    ] {
        let found = findings(&process, &with_ring_errno(errno));
        one(&found, Level::Broken, text, remedy);
        assert_eq!(found.iter().filter(|it| it.level == Level::Broken).count(), 1, "said once: {found:#?}");
    }
}

#[test]
fn rings_that_may_not_be_entered_are_no_rings() {
    let mut machine = machine();
    machine.features[1].errno = Some(libc::EPERM);
    let found = findings(&Process { seccomp: Some(2), ..process() }, &machine);
    one(&found, Level::Broken, "io_uring is refused (EPERM)", "io_uring_enter");
}

#[test]
fn what_the_kernel_lacks_is_named_with_the_kernel_that_has_it() {
    let lacks = |name: &str, errno| {
        let mut machine = machine();
        machine.features.iter_mut().filter(|it| it.name == name).for_each(|it| it.errno = Some(errno));
        findings(&process(), &machine)
    };
    one(&lacks("large_entries", libc::EINVAL), Level::Broken, "SQE128", "5.19");
    one(&lacks("cloned_buffers", libc::EINVAL), Level::Better, "each lane pins", "6.1 or later");
    one(&lacks("uring_cmd", libc::EOPNOTSUPP), Level::Better, "passthrough", "or later");
    one(&lacks("uring_cmd", libc::ENOMEM), Level::Better, "uring_cmd could not be tried", "ulimit -l");
    // The memlock limit has its own line.
    let found = lacks("cloned_buffers", libc::ENOMEM);
    assert_eq!(worst(&found), Level::Ok, "{found:#?}");
    one(&findings(&process(), &machine()), Level::Ok, "all 5 features", "");
}

#[test]
fn an_engine_that_cannot_be_built_over_good_rings_says_which_limit() {
    for (errno, remedy) in
        [(libc::ENOMEM, "ulimit -l"), (libc::EMFILE, "ulimit -n"), (libc::EAGAIN, "ulimit -u")]
    {
        let machine = Machine { no_engine: Some(refusal(errno, ErrorKind::Resource)), ..machine() };
        one(&findings(&process(), &machine), Level::Broken, "no engine can be built: refused", remedy);
    }
}

#[test]
fn memlock_is_judged_by_whether_memory_could_be_registered() {
    let limit = |soft, hard| Limit { soft, hard };
    let with = |memlock, registered| {
        let process = Process { capabilities: 0, memlock, registered, ..process() };
        findings(&process, &machine())
    };
    let small = limit(Some(64 << 10), Some(64 << 10));
    let found = with(small, Some(Err("memlock".into())));
    one(&found, Level::Better, "64 KiB is too little", "sudo prlimit --pid $$ --memlock=unlimited");
    one(
        &with(limit(Some(64 << 10), None), Some(Err(String::new()))),
        Level::Better,
        "64 KiB",
        "ulimit -l unlimited",
    );
    one(
        &with(limit(Some(8 << 20), None), Some(Ok(()))),
        Level::Better,
        "a larger pool runs unregistered",
        "LimitMEMLOCK",
    );
    one(&with(limit(Some(8 << 30), None), Some(Ok(()))), Level::Ok, "memlock: 8 GiB", "");
    one(&with(limit(None, None), Some(Ok(()))), Level::Ok, "unlimited", "");
    one(
        &with(limit(None, None), Some(Err("why".into()))),
        Level::Better,
        "cannot be registered: why",
        "dmesg",
    );
    let root = Process { memlock: small, ..process() };
    one(&findings(&root, &machine()), Level::Ok, "CAP_IPC_LOCK", "");
}

#[test]
fn few_descriptors_can_be_mended() {
    let with = |soft, hard| {
        findings(&Process { open_files: Limit { soft: Some(soft), hard }, ..process() }, &machine())
    };
    one(&with(64, Some(4096)), Level::Better, "open files: 64", "ulimit -n 4096");
    one(&with(64, Some(64)), Level::Better, "open files: 64", "sudo prlimit");
    one(&with(64, None), Level::Better, "open files: 64", "ulimit -n 65536");
    one(&with(1024, None), Level::Ok, "open files: 1024", "");
}

#[test]
fn the_control_group_is_judged_by_what_it_leaves() {
    let with = |memory_max, share| {
        let cgroup = Cgroup { path: Some("/a".into()), memory_max, cpus: share, ..Cgroup::default() };
        findings(&Process { cgroup, ..process() }, &Machine { allowed: cpus("0-3"), ..machine() })
    };
    one(&with(Some(1 << 20), None), Level::Better, "1 MiB of memory", "MemoryMax");
    one(&with(Some(8 << 30), None), Level::Ok, "8 GiB of memory", "");
    one(&with(None, Some(0.5)), Level::Better, "0.50 CPUs of time on 4", "--cpus");
    one(&with(None, Some(3.0)), Level::Ok, "3.00 CPUs", "");
    one(&with(None, None), Level::Ok, "4 of 8 may be used (0-3)", "");
    one(&with(None, None), Level::Ok, "no limit on memory", "");
    let hidden = findings(&Process { cgroup: Cgroup::default(), ..process() }, &machine());
    one(&hidden, Level::Ok, "none is to be seen", "");
    assert!(!hidden.iter().any(|it| it.text.contains("no limit on")), "what is not seen is not vouched for");
}

#[test]
fn a_filter_that_forbids_a_part_of_io_uring_is_not_an_old_kernel() {
    let mut machine = machine();
    machine
        .features
        .iter_mut()
        .filter(|it| it.name == "uring_cmd")
        .for_each(|it| it.errno = Some(libc::EPERM));
    machine.no_engine = Some(refusal(libc::EPERM, ErrorKind::Permission));
    let found = findings(&Process { seccomp: Some(2), ..process() }, &machine);
    one(&found, Level::Better, "no NVMe passthrough (EPERM)", "io_uring_register");
    one(&found, Level::Broken, "no engine can be built", "io_uring_register");
}

#[test]
fn the_limit_of_open_files_is_raised_to_what_the_kernel_allows() {
    let mut machine = machine();
    machine.no_engine = Some(refusal(libc::EMFILE, ErrorKind::Resource));
    let few = Limit { soft: Some(8), hard: Some(8) };
    let found = findings(&Process { open_files: few, ..process() }, &machine);
    one(&found, Level::Broken, "no engine can be built", "--nofile=65536:65536");
}
