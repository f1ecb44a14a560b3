//! File systems of a directory that holds an archive: locks of a network file system are not trusted.

use std::path::Path;

use rustix::fs::statfs;

use crate::archive::error::Failed;

/// Types of statfs(2), from linux/magic.h and the kernel's modules.
const NETWORK: [(u32, &str); 10] = [
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x0bd0_0bd0, "lustre"),
    (0x0116_1970, "gfs2"),
];

/// Refuses a directory on a network file system.
pub(super) fn check_file_system(dir: &Path) -> Result<(), Failed> {
    let file =
        |error: rustix::io::Errno| Failed::File { path: dir.to_owned(), error: error.into() };
    // The field has 64 bits on most machines, and the magic number 32.
    let magic = u32::try_from(statfs(dir).map_err(file)?.f_type & 0xffff_ffff).unwrap_or_default();
    match network_name(magic) {
        Some(what) => Err(Failed::NetworkFileSystem { dir: dir.to_owned(), what }),
        None => Ok(()),
    }
}

/// Name of a network file system with this type.
fn network_name(magic: u32) -> Option<&'static str> {
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_named_and_local_ones_are_not() {
        assert_eq!(network_name(0x6969), Some("nfs"));
        assert_eq!(network_name(0xff53_4d42), Some("cifs"));
        assert_eq!(network_name(0xef53), None, "ext4");
        let dir = tempfile::tempdir().expect("a directory can be made");
        assert!(check_file_system(dir.path()).is_ok());
    }
}
