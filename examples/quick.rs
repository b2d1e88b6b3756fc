//! scratch
use fullbore::*;
use std::time::Instant;
use std::collections::VecDeque;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (file, lanes, depth, inflight, total) = (&a[1], a[2].parse::<usize>().unwrap(), a[3].parse::<u32>().unwrap(), a[4].parse::<usize>().unwrap(), a[5].parse::<u64>().unwrap() << 20);
    let null = file == "null";
    let mut b = Engine::builder().lanes(lanes).lane_depth(depth);
    if null { b = b.null(); }
    let e = b.build().unwrap();
    let t = if null { e.open_null(4 << 30).unwrap() } else { e.open(file, OpenOptions::read()).unwrap() };
    let bs = 20usize << 20;
    let pool = 34;
    let p = e.alloc_host(pool * bs).unwrap();
    let c = e.client().unwrap();
    let mut idle: VecDeque<Transfer> = (0..pool).map(|i| {
        let mut l = p.lease(i*bs..(i+1)*bs).unwrap();
        if !null { l.fill(1); }
        Transfer::read(&t).extent(0, l)}).collect();
    let objs = t.size() / bs as u64;
    let mut next = 0; let mut done = 0; let n = total / bs as u64;
    let s0 = Instant::now(); let mut out = vec![]; let mut paths = PathSet::default();
    while done < n {
        while next < n && next - done < inflight as u64 {
            let mut x = idle.pop_front().unwrap();
            x.extents_mut()[0].set_offset((next % objs) * bs as u64);
            c.submit_tagged(x, next).unwrap(); next += 1;
        }
        done += c.wait(1, &mut out, None).unwrap() as u64;
        for o in out.drain(..) { o.result.unwrap(); paths = paths.union(o.paths); idle.push_back(o.transfer.unwrap()); }
    }
    let el = s0.elapsed().as_secs_f64();
    let s = e.stats();
    let cmds: u64 = s.lanes.iter().map(|l| l.commands).sum();
    let enters: u64 = s.lanes.iter().map(|l| l.enters).sum();
    println!("{:.2} GB/s  {:.1} ns/cmd enters/cmd {:.3} {} max {:?} stale {}", (n * bs as u64) as f64 / el / 1e9, el*1e9/cmds as f64, enters as f64/cmds as f64, paths, s.lanes.iter().map(|l| l.max_in_flight).collect::<Vec<_>>(), s.lanes[0].stale);
    let t = Instant::now();
    drop(e);
    eprintln!("drop {:?}", t.elapsed());
}
