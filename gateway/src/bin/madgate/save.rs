//! Files that a command writes: whole or not at all, and never over what it reads.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use madgate_vchannel::Cluster;
use rustix::fs::{XattrFlags, fremovexattr, fsetxattr};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::failure::{Context, Failure};

/// A file that can be written: there is room for it beside what is there.
#[derive(Debug)]
pub(crate) struct Target {
    /// The file itself, where a link leads to it.
    path: PathBuf,
    /// What it is called by who named it.
    shown: PathBuf,
    /// Where it is made, to be renamed when it is complete.
    folder: PathBuf,
    /// What has to be there still.
    expected: Option<String>,
}

impl Target {
    /// Prepares to write `path`, so that it is known before anything is measured whether that
    /// can be done. Where `expected` is given, the file has to be so until it is written.
    pub(crate) fn prepare(path: &Path, expected: Option<&str>) -> Result<Self, Failure> {
        let what = || format!("cannot write {}", path.display());
        let shown = path.to_owned();
        // A link stays one.
        let path = behind_links(path).or_fail(what)?;
        let present = fs::metadata(&path).ok();
        if let Some(present) = &present
            && !present.is_file()
        {
            let kind = if present.is_dir() {
                "a folder"
            } else {
                "no file"
            };
            return Err(Failure::new(format!("{}: it is {kind}", what())));
        }
        let folder = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = folder.to_owned();
        if folder.try_exists().is_ok_and(|exists| !exists) {
            let why = format!("{}: there is no folder {}", what(), folder.display());
            return Err(Failure::new(why));
        }
        // Not kept: who is killed while it measures leaves nothing.
        let beside = file_in(&folder).or_fail(what)?;
        if let Some(present) = present {
            let alike = make_alike(&beside, &present).and_then(|()| copy_acl(&path, &beside));
            let refused = alike.or_fail(what);
            refused.map_err(|failure| failure.advising(OF_ANOTHER))?;
        }
        Ok(Self {
            path,
            shown,
            folder,
            expected: expected.map(str::to_owned),
        })
    }

    /// Writes the file, and returns what it is called.
    pub(crate) fn write(self, text: &str) -> Result<PathBuf, Failure> {
        let shown = self.shown;
        let what = || format!("cannot write {}", shown.display());
        if let Some(expected) = &self.expected
            && fs::read_to_string(&self.path).or_fail(what)? != *expected
        {
            return Err(Failure::new(format!(
                "{} was changed meanwhile, and stays as it is; name another file",
                shown.display()
            )));
        }
        let mut beside = file_in(&self.folder).or_fail(what)?;
        if let Ok(present) = fs::metadata(&self.path) {
            let alike = make_alike(&beside, &present).and_then(|()| copy_acl(&self.path, &beside));
            let refused = alike.or_fail(what);
            refused.map_err(|failure| failure.advising(OF_ANOTHER))?;
        }
        beside.write_all(text.as_bytes()).or_fail(what)?;
        beside.as_file().sync_all().or_fail(what)?;
        // A file that something is mounted on, say, cannot be replaced, which shows only here.
        let persisted = beside.persist(&self.path);
        let replaced = persisted.map_err(|error| error.error).or_fail(what);
        replaced.map_err(|failure| failure.advising("name another file"))?;
        Ok(shown)
    }
}

/// What helps where a file belongs to somebody else, to whom nothing can be given.
const OF_ANOTHER: &str = "it has to stay whose it is now; name another file";

/// What every command reads that takes part in a session, each with what it is.
pub(crate) fn inputs<'a>(file: &'a Path, cluster: &'a Cluster) -> [(&'static str, &'a Path); 2] {
    [
        ("the cluster file", file),
        ("the session key", cluster.key_file()),
    ]
}

/// Makes sure that what an option names is not written over one of the others, each of which comes with
/// what it is: `the session key`, `what --output writes`.
pub(crate) fn keep_apart(
    (option, path): (&str, &Path),
    others: &[(&str, &Path)],
) -> Result<(), Failure> {
    match others.iter().find(|(_, other)| is_same(path, other)) {
        Some((other, _)) => Err(Failure::usage(format!(
            "{option} would write over {}, which is {other}: name another file",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Whether both paths lead to one file, which may not be there yet.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => {
            one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (Err(_), Err(_)) => place_of(one) == place_of(other),
        _ => false,
    }
}

/// The links that are followed to a file that is not there, as many as Linux follows.
const LINKS_MOST: usize = 40;

/// The file that a path leads to, which may not be there.
pub(crate) fn behind_links(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(end_of_links(path)),
        path => path,
    }
}

/// Where links lead whose file is not there.
fn end_of_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MOST {
        let Ok(target) = path.read_link() else {
            break;
        };
        path = match path.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    path
}

/// Where a file will be that is not there.
fn place_of(path: &Path) -> PathBuf {
    let path = &*end_of_links(path);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Permissions of a file that was not there, less what the user's mask takes away: what is written holds no
/// secrets.
const NEW_MODE: u32 = 0o666;

/// A file that is made there, and removed unless it gets a name.
fn file_in(folder: &Path) -> io::Result<NamedTempFile> {
    let made = tempfile::Builder::new()
        .prefix(".madgate-")
        .permissions(fs::Permissions::from_mode(NEW_MODE))
        .tempfile_in(folder);
    // Its path, which the error has too, is nobody's concern.
    made.map_err(|error| error.kind().into())
}

/// Gives a file to whom `present` belongs, for those who may read that.
fn make_alike(file: &NamedTempFile, present: &fs::Metadata) -> io::Result<()> {
    let file = file.as_file();
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (present.uid(), present.gid()) {
        fchown(file, Some(present.uid()), Some(present.gid()))?;
    }
    // Afterwards, as giving it away takes some of them.
    file.set_permissions(present.permissions())
}

/// Where the system keeps who else may read or write a file, and how much of that there is at most.
const ACL: &str = "system.posix_acl_access";
const ACL_BYTES_MOST: usize = 64 << 10;

/// Lets those read and write `file` who may by the access control list of what is at `path`.
fn copy_acl(path: &Path, file: &NamedTempFile) -> io::Result<()> {
    let mut list = Vec::with_capacity(ACL_BYTES_MOST);
    match rustix::fs::getxattr(path, ACL, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => Ok(fsetxattr(file.as_file(), ACL, &list, XattrFlags::empty())?),
        // There is none: the folder may have given the new file one.
        Err(Errno::NODATA) => match fremovexattr(file.as_file(), ACL) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        },
        // There are none here.
        Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use rustix::process::geteuid;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: Result<fs::DirEntry, _>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn who_may_read_a_file_by_a_list_may_read_the_new_one() {
        // Version 2; tag, rights and number of the owner, user 1001, the group, the mask, others.
        let entries: [(u16, u16, u32); 5] = [
            (0x01, 6, u32::MAX),
            (0x02, 4, 1001),
            (0x04, 4, u32::MAX),
            (0x10, 4, u32::MAX),
            (0x20, 0, u32::MAX),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            list.extend_from_slice(&tag.to_le_bytes());
            list.extend_from_slice(&rights.to_le_bytes());
            list.extend_from_slice(&number.to_le_bytes());
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        let opened = fs::File::open(&file).unwrap();
        if let Err(error) = fsetxattr(&opened, ACL, &list, XattrFlags::empty()) {
            eprintln!("skipped: no access control lists here: {error}");
            return;
        }
        Target::prepare(&file, None).unwrap().write("new").unwrap();
        let mut there = Vec::with_capacity(ACL_BYTES_MOST);
        rustix::fs::getxattr(&file, ACL, rustix::buffer::spare_capacity(&mut there)).unwrap();
        assert_eq!(there, list);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let shown = Target::prepare(&link, Some("old"))
            .unwrap()
            .write("new")
            .unwrap();
        assert_eq!(
            (shown, fs::read_to_string(&file).unwrap()),
            (link.clone(), "new".into())
        );
        assert!(link.is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let other = folder.path().join("other");
        Target::prepare(&other, None).unwrap().write("new").unwrap();
        assert_eq!(names(folder.path()), ["file", "link", "other"]);
        // Also one whose file is not there yet.
        let (far, early) = (folder.path().join("far"), folder.path().join("early"));
        std::os::unix::fs::symlink("far", &early).unwrap();
        Target::prepare(&early, None).unwrap().write("new").unwrap();
        assert!(early.is_symlink());
        assert_eq!(fs::read_to_string(&far).unwrap(), "new");
        // As the user's mask has it, which other tests may not change.
        let usual = folder.path().join("usual");
        fs::write(&usual, "").unwrap();
        let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode(&other), mode(&usual));
    }

    #[test]
    fn nothing_is_written_over_what_is_read_or_written_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("cluster"), "").unwrap();
        std::os::unix::fs::symlink("cluster", at("link")).unwrap();
        fs::hard_link(at("cluster"), at("hard")).unwrap();
        fs::create_dir(at("inner")).unwrap();
        std::os::unix::fs::symlink("late", at("early")).unwrap();
        let refused = |one: &Path, other: &Path| {
            let apart = keep_apart(("--one", one), &[("the other", other)]);
            apart.map_or_else(|failure| failure.to_string(), |()| String::new())
        };
        let same = [
            ("cluster", "cluster"),
            ("link", "cluster"),
            ("hard", "cluster"),
            ("inner/../cluster", "link"),
            ("new", "inner/../new"),
            ("early", "late"),
        ];
        for (one, other) in same {
            let refused = refused(&at(one), &at(other));
            assert!(
                refused.starts_with("--one would write over"),
                "{one}: {refused}"
            );
            assert!(refused.contains("which is the other"), "{one}: {refused}");
        }
        assert_eq!(refused(&at("new"), &at("newer")), "");
        assert_eq!(refused(&at("new"), &at("cluster")), "");
        assert_eq!(refused(Path::new("/dev/null"), Path::new("/dev/null")), "");
    }

    #[test]
    fn a_file_stays_whose_it_was() {
        if !geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        if let Err(error) = chown(&file, Some(12), Some(34)) {
            println!("skipped: this root cannot give files away: {error}");
            return;
        }
        let target = Target::prepare(&file, Some("old")).unwrap();
        target.write("new").unwrap();
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.uid(), now.gid()), (12, 34));
        assert_eq!(now.permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_not_written_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        let target = Target::prepare(&file, Some("old")).unwrap();
        assert_eq!(
            names(folder.path()),
            ["file"],
            "not even while it is measured"
        );
        fs::write(&file, "of somebody else").unwrap();
        let failure = target.write("new").unwrap_err().to_string();
        assert!(failure.contains("changed meanwhile"), "{failure}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "of somebody else");
        assert_eq!(names(folder.path()), ["file"]);
        let missing = folder.path().join("missing").join("file");
        let failure = Target::prepare(&missing, None).unwrap_err().to_string();
        assert!(failure.contains("there is no folder"), "{failure}");
        for (path, why) in [
            (folder.path(), "is a folder"),
            (Path::new("/dev/null"), "is no file"),
        ] {
            let failure = Target::prepare(path, None).unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
        }
    }
}
