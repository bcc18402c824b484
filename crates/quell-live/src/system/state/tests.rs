use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use quell_link::Error;

use super::file::StateFile;
use super::folder::Folder;
use super::{CHANGES, Command, is_name};

const TEST: Command = Command {
    name: "test",
    look: "nothing",
    service: None,
    location: CHANGES,
};

/// Makes a temporary folder with a state file.
fn made(name: &str) -> (PathBuf, StateFile) {
    let path = std::env::temp_dir().join(format!("quell-state-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .expect("a folder");
    (path.clone(), taken(&path).expect("taken").expect("free"))
}

fn taken(path: &Path) -> Result<Option<StateFile>, Error> {
    let folder = Folder::open(CHANGES, path, false).expect("opened")?;
    TEST.take(Arc::new(folder), "file".to_owned())
}

#[test]
fn a_file_is_one_process_and_comes_as_a_whole() {
    let (path, file) = made("whole");
    assert!(taken(&path).expect("asked").is_none(), "it is held");
    assert_eq!(file.read_text().expect("none"), None);
    file.try_text(b"[1]").expect("room");
    let large = vec![b' '; 17 << 20];
    let why = file.try_text(&large).expect_err("too large").to_string();
    assert!(why.contains("may have 16777216 bytes"), "{why}");
    assert_eq!(file.read_text().expect("none"), None);
    file.write(&[1, 2]).expect("written");
    fs::write(path.join("file.part"), "of a killed process").expect("part");
    file.write(&[3]).expect("written");
    assert_eq!(file.read_text().expect("it"), Some("[3]".to_owned()));
    let mode = fs::metadata(file.path()).expect("it").mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(file);
    let file = taken(&path).expect("asked").expect("free again");
    file.remove().expect("removed");
    file.remove().expect("removed before");
    let left: Vec<_> = fs::read_dir(&path).expect("it").flatten().collect();
    assert_eq!(left.len(), 1, "the lock stays: {left:?}");
    fs::remove_dir_all(path).expect("removed");
}

#[test]
fn parts_of_killed_processes_are_removed_and_those_of_others_stay() {
    let (path, held) = made("parts");
    for name in ["file", "eth0", "eth1@1:10", "eth2"] {
        fs::write(path.join(format!("{name}.part")), "[").expect("written");
    }
    // Names that are not of this command's state files, links and folders.
    fs::write(path.join("a b.part"), "[").expect("written");
    symlink("a b.part", path.join("eth3.part")).expect("a link");
    fs::create_dir(path.join("eth4.part")).expect("a folder");
    let folder = || Folder::open(CHANGES, &path, false).expect("opened");
    let left = || {
        let mut left = folder().expect("ours").subjects("", ".part");
        left.sort();
        left
    };
    let remove = |devs: &[&str]| {
        let devs: Vec<_> = devs.iter().map(|dev| (*dev).to_owned()).collect();
        TEST.remove_parts(&Arc::new(folder().expect("ours")), "", &devs);
        left()
    };
    assert_eq!(remove(&["eth1"]), ["eth0", "eth2", "eth3", "eth4", "file"]);
    assert_eq!(remove(&[]), ["eth4", "file"], "one is held, one no file");
    assert!(path.join("a b.part").exists());
    drop(held);
    // A process that another test starts has a copy of the lock until its program is executed.
    let until = Instant::now() + Duration::from_secs(10);
    while remove(&[]) != ["eth4"] && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(left(), ["eth4"]);
    fs::remove_dir_all(path).expect("removed");
}

#[test]
fn of_the_files_under_a_lock_those_written_last_are_kept() {
    let (path, lock) = made("pruned");
    let files: Vec<_> = (0..5u32).map(|n| lock.about(&n.to_string())).collect();
    for (age, file) in files.iter().enumerate() {
        file.write(&[age]).expect("written");
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(age as u64);
        let opened = File::open(file.path()).expect("it");
        opened.set_modified(written).expect("set");
    }
    files[1].set_aside().expect("renamed");
    let others = [
        "file-0.safetensors",
        "file-0123456789abcdef-egress.json",
        "a",
    ];
    for other in others {
        fs::write(path.join(other), "of another").expect("written");
    }
    let left = |file: &StateFile| file.read_text().expect("read").is_some();
    lock.prune(&files[4], 5);
    assert_eq!(fs::read_dir(&path).expect("it").count(), 5 + 1 + 3);
    // The clock may have been set back.
    lock.prune(&files[0], 3);
    let left: Vec<_> = files.iter().map(left).collect();
    assert_eq!(left, [true, false, false, true, true]);
    assert_eq!(fs::read_dir(&path).expect("it").count(), 3 + 1 + 3);
    drop(lock);
    fs::remove_dir_all(path).expect("removed");
}

#[test]
fn the_files_of_an_interface_with_a_dot_in_its_name_are_pruned_apart_from_its_parents() {
    let (path, _lock) = made("dots");
    let folder = Folder::open(CHANGES, &path, false).expect("opened");
    let folder = Arc::new(folder.expect("ours"));
    let held = |name: &str| {
        let held = TEST.take(folder.clone(), name.to_owned());
        held.expect("taken").expect("free")
    };
    let (parent, vlan) = (held("eth0-egress"), held("eth0.100-egress"));
    let written = |lock: &StateFile| {
        let files = [0, 1, 2].map(|n: u32| lock.about(&n.to_string()));
        files
            .iter()
            .for_each(|file| file.write(&[0]).expect("written"));
        files
    };
    let left = |files: &[StateFile]| {
        let left = files
            .iter()
            .filter(|file| file.read_text().expect("read").is_some());
        left.count()
    };
    let (of_parent, of_vlan) = (written(&parent), written(&vlan));
    vlan.prune(&of_vlan[0], 1);
    assert_eq!((left(&of_parent), left(&of_vlan)), (3, 1));
    parent.prune(&of_parent[0], 2);
    assert_eq!((left(&of_parent), left(&of_vlan)), (2, 1));
    fs::remove_dir_all(path).expect("removed");
}

#[test]
fn links_pipes_and_files_of_others_are_refused() {
    let (path, file) = made("refused");
    let said = || file.read_text().expect_err("refused").to_string();
    fs::write(path.join("secret"), "secret").expect("written");
    symlink("secret", file.path()).expect("a link");
    assert!(said().contains("is a link"), "{}", said());
    // It replaces a link, and does not change the link's target.
    symlink("secret", path.join("file.part")).expect("a link");
    file.write(&[1]).expect("written");
    let secret = fs::read_to_string(path.join("secret")).expect("it");
    assert_eq!(
        (secret.as_str(), file.read_text().expect("it").as_deref()),
        ("secret", Some("[1]"))
    );
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("set");
    assert!(said().contains("other users can write to it"), "{}", said());
    fs::write(file.path(), vec![b' '; 17 << 20]).expect("written");
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).expect("set");
    assert!(said().contains("is too large"), "{}", said());
    fs::write(file.path(), [0xff]).expect("written");
    assert!(said().contains("then delete it"), "{}", said());
    drop(file);
    fs::remove_dir_all(path).expect("removed");
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_with_the_remedy() {
    let (path, file) = made("folder");
    drop(file);
    let said = |path: &Path| taken(path).expect_err("refused").to_string();
    for mode in [0o777, 0o1777, 0o770, 0o720, 0o702] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let why = said(&path);
        assert!(
            why.contains(&format!(
                "(mode {mode:o}); name a folder of your own in $RUNTIME_DIRECTORY"
            )),
            "{why}"
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    let link = path.with_extension("link");
    symlink(&path, &link).expect("a link");
    assert!(said(&link).contains("is a link"), "{}", said(&link));
    let followed = Folder::open(CHANGES, &link, true).expect("opened");
    assert!(followed.is_ok(), "where systemd makes it");
    fs::remove_file(link).expect("removed");
    fs::remove_dir_all(path).expect("removed");
}

#[test]
fn names_are_those_of_interfaces() {
    for name in ["eth0", "eth0.5", "eth0@1:10", "$(id)", "-x", "\u{e4}"] {
        assert!(is_name(name), "{name}");
    }
    for name in [
        "",
        "a/b",
        "../x",
        "a b",
        "a\nb",
        "\u{1b}[2J",
        "\0",
        &"a".repeat(41),
    ] {
        assert!(!is_name(name), "{name:?}");
    }
}
