//! Several targets as one.

use super::inner::{Striped, TargetInner};
use crate::error::{Error, ErrorKind};
use crate::plan::{PARTS, Stripe};
use std::sync::Arc;

/// Most members: a part has a bit for each.
const MOST: usize = 64;

/// Makes one target of `members`, chunks of `size` bytes in turn. Its size is that of the smallest member, whole
/// chunks, for each.
pub fn stripe(members: Vec<Arc<TargetInner>>, size: u64, engine: u64) -> Result<TargetInner, Error> {
    let bad = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
    if !(1..=MOST).contains(&members.len()) {
        return bad(format!("a stripe has 1 to {MOST} members, and {} were given", members.len()));
    }
    let first = &members[0];
    let block = first.geometry.block as u64;
    if size == 0 || !size.is_multiple_of(block.max(4096)) || size > 1 << 30 {
        return bad(format!(
            "a stripe size of {size} bytes; give whole blocks, from {} to 1 GiB",
            block.max(4096)
        ));
    }
    for (index, member) in members.iter().enumerate() {
        if member.striped.is_some() {
            return bad(format!("{} is a stripe itself; name its members", member.name));
        }
        if members[..index].iter().any(|other| Arc::ptr_eq(other, member) || other.name == member.name) {
            return bad(format!("{} is named twice; each member must be another", member.name));
        }
        let alike = (member.kind, member.direct, member.writable, member.geometry)
            == (first.kind, first.direct, first.writable, first.geometry);
        if !alike {
            let message = format!(
                "members must be of one kind and geometry and opened alike: {} is {:?} with {:?}, {} is {:?} with {:?}",
                first.name, first.kind, first.geometry, member.name, member.kind, member.geometry
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    let count = members.len() as u64;
    let least = members.iter().map(|member| member.size()).min().unwrap_or(0);
    let name = members.iter().map(|member| &*member.name).collect::<Vec<_>>().join(":");
    let total = least / size * size * count;
    if total == 0 {
        return bad(format!(
            "the smallest member has {least} bytes, less than a chunk of {size}; make the chunk smaller"
        ));
    }
    let mut target = TargetInner::bare(&name, engine, first.kind, first.geometry, total);
    (target.direct, target.writable, target.polled) = (first.direct, first.writable, first.polled);
    target.unfixed = members.iter().find_map(|member| member.unfixed.clone());
    let stripe = Stripe { size, members: count as u32 };
    let (parts, groups) = parts(&members);
    target.striped = Some(Striped { stripe, members, parts });
    let _ = target.groups.set(groups);
    Ok(target)
}

/// Members by the group of lanes that serves them, as bits, and those groups.
fn parts(members: &[Arc<TargetInner>]) -> (Vec<u64>, Vec<Vec<usize>>) {
    let mut known: Vec<usize> = Vec::new();
    let (mut parts, mut groups) = (Vec::new(), Vec::new());
    for (index, member) in members.iter().enumerate() {
        let group = member.groups.get().and_then(|parts| parts.first()?.first().copied()).unwrap_or(0);
        let number = known.iter().position(|other| *other == group).unwrap_or_else(|| {
            known.push(group);
            let part = (known.len() - 1) % PARTS;
            if part == parts.len() {
                parts.push(0u64);
                groups.push(Vec::new());
            }
            groups[part].push(group);
            known.len() - 1
        });
        parts[number % PARTS] |= 1 << index;
    }
    (parts, groups)
}
