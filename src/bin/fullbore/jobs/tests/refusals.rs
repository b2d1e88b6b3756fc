//! What is refused of job files and command lines, and how that is said.

use std::fs;

use super::{job, jobs, written};
use crate::failure::Failure;

#[test]
fn refusals_of_the_command_line_are_one_line_with_a_remedy() {
    for line in [
        "--name=a --bogus=1",
        "--name=a --workload=kv",
        "--name=a --bs",
        "--name=a --bs=12x",
        "--name=a --bs=0",
        "--name=a --bs=4k,8k",
        "--name=a --rw=trim",
        "--name=a --rw=randread:8",
        "--name=a --rw=sideways",
        "--name=a --verify=sha9",
        "--name=a --verify=off",
        "--name=a --iodepth=0",
        "--name=a --iodepth=5000",
        "--name=a --numjobs=257",
        "--name=a --rwmixread=101",
        "--name=a --runtime=soon",
        "--name=a --time_based",
        "--name=a --direct=2",
        "--name=a --fixedbufs=0",
        "--name=a --thread=0",
        "--name=a --registerfiles=0",
        "--name=a --ioengine=rados",
        "--name=a --cmd_type=scsi",
        "--name=a --mem=mmapshared",
        "--name=a --mem=gpu:x",
        "--name=a --numa_mem_policy=bind:0",
        "--name=a --cpus_allowed=3-1",
        "--name=a --cpus_allowed=0 --cpus_allowed_policy=split --numjobs=2",
        "--name=a --percentile_list=101",
        "--name=a --lanes=many",
        "--name=a --lanes=65",
        "--name=a --cmd_size=1000",
        "--name=a --cmd_size=32m",
        "--name=a --stripe=1m",
        "--name=a --filename=/a: --stripe=1m",
        "--name=a --filename=/a:/b --nrfiles=2",
        "--name=a --allow-destructive --rw=write --force",
        "--name=a --target=dax --direct=0",
        "--name=a --size=0%",
        "--name=a --rate=1,2,3,4",
        "--name=a --requests=4",
        "--name=a --compare=fio --nrfiles=2",
        "--name=a --bssplit=4k/50",
        "--name=a --mem=gpu:0 --numa_mem_policy=prefer:0",
        "no-such-file.fio",
        "--showcmd",
    ] {
        let Err(Failure::Setup(text)) = jobs(line) else { panic!("{line} was taken") };
        assert!(!text.contains('\n') && text.contains(": "), "{line}: {text}");
    }
}

#[test]
fn refusals_of_job_files_say_where() {
    for (text, at) in [
        ("[a]\nbs=4k\niodeth=3\n", ":3: iodeth=3: there is no such key: did you mean iodepth?"),
        ("\n; x\nbs=4k\n", ":3: bs stands before any section"),
        ("[a\n", ":1: `[a` begins no section"),
        ("[]\n", ":1: "),
        ("[a]\nsize=${NONE}\n", ":2: size: ${NONE} is not set"),
        ("[a]\nsize=${SIZE\n", ":2: size: `${` without its `}`"),
        ("[a]\nsize=12x # y\n", ":2: size=12x: "),
        ("[a]\nrw\n", ":2: rw: it needs a value"),
        ("[a]\noutput=x\n", ":2: output=x: it is about the whole run"),
        ("[a]\nzonesize=1m\n", ":2: zonesize=1m: fio has this key and fullbore does not"),
        (
            "[a]\nrequests=8\n",
            ":2: requests=8: it is of the table of arms, which runs where no job is named: give it on a command line without jobs, --requests",
        ),
        ("[a]\ninclude none.inc\n", ":2: include none.inc: "),
        ("[global]\nname=x\n", ": no job in it"),
        ("[global]\nbs=4k\n", ": no job in it"),
    ] {
        let path = written("refused", text);
        let refused = jobs(&path.display().to_string()).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(refused.contains(at) && !refused.contains('\n'), "{text:?}: {refused}");
        assert!(refused.starts_with(&path.display().to_string()), "{refused}");
    }
    // What is to be measured, named as if it were a job file, is not read from end to end.
    let large = written("large", "");
    fs::File::create(&large).unwrap().set_len(2 << 20).unwrap();
    for path in [large.clone(), std::env::temp_dir()] {
        let refused = jobs(&path.display().to_string()).unwrap_err().to_string();
        assert!(refused.contains("--filename") && !refused.contains('\n'), "{refused}");
    }
    fs::remove_file(large).unwrap();
    let path = written("circle", "");
    fs::write(&path, format!("[a]\ninclude {}\n", path.display())).unwrap();
    let refused = jobs(&path.display().to_string()).unwrap_err().to_string();
    fs::remove_file(&path).unwrap();
    assert!(refused.contains("without end"), "{refused}");
}

#[test]
fn what_cannot_be_had_is_said_before_anything_runs() {
    for (line, part) in [
        ("--name=a --verify=crc32d", "no method"),
        ("--name=a --section=b", "name one"),
        ("--name=a --iodepth=4096 --numjobs=64", "65536"),
        ("--name=a --size=1m --compare=fio --offset_increment=4k", "one part of one file"),
    ] {
        let why = jobs(line).unwrap_err().to_string();
        assert!(why.contains(part) && !why.contains('\n'), "{line}: {why}");
    }
    assert!(job("--verify=md5").verify && !job("--verify=0").verify && !job("--verify=null").verify);
    assert_eq!((job("--io_size=0").io_size, job("--filesize=0").filesize), (None, None));
    // What is no job file is neither searched for a name like it, nor printed in full.
    let path = written("noise", &format!("[a]\n{}\u{7}=1\n", "x".repeat(1 << 19)));
    let why = jobs(&path.display().to_string()).unwrap_err().to_string();
    assert!(why.len() < 500 && why.contains("no such key"), "{why}");
    fs::write(&path, "\u{feff}[a]\r\nbs=8k\r\n").unwrap();
    assert_eq!(jobs(&path.display().to_string()).unwrap()[0].bs, 8192);
    fs::remove_file(&path).unwrap();
}
