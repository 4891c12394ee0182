//! The file set as the generator knows it: which files, directories and symbolic links there are, how popular
//! each is, and how to name it to the server.
//!
//! ```text
//! FileId ----> | parent | name | size | in flight | flags |   24 bytes     by slot, never moves
//!              | weight |                                       5 bytes     `WeightTree`
//!              | handle |                                     as long as the server's   `HandleTable`
//! ```
//!
//! Names are made from numbers (`f0000012345`), so none is stored. A free slot is found again through a list
//! threaded through the free records themselves.
//!
//! Always holds: an id stands for the same object until the object was removed and no operation on it is in
//! flight any more; only then may its slot be used again. Sums of counts and bytes are kept, never recounted.
//! Not here: talking to the server (see the engine), how weights are summed (see `weights`).
//! Source: Anderson, "Fstress", section 4.1 (object sets).

pub(crate) mod chunks;
mod directories;
mod files;
mod handles;
mod names;
mod symlinks;
pub(super) mod weights;

use rand::Rng;

pub use directories::DirectoryId;
pub use files::{FileFlags, FileId};
pub use handles::{HANDLE_BYTES_LIMIT, HandleTable};
pub use names::{Maker, ObjectName};
pub use symlinks::SymlinkId;

use directories::Directories;
use files::Files;
use symlinks::Symlinks;

/// Everything below one root directory. See the head of this file.
pub struct ObjectSets {
    root_name: String,
    files: Files,
    directories: Directories,
    symlinks: Symlinks,
}

/// Memory of the object sets, in bytes on the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectMemory {
    /// Records and weights of files, handles aside.
    pub files_bytes: usize,
    /// Records and weights of directories, handles aside.
    pub directories_bytes: usize,
    /// Records and weights of symbolic links, handles aside.
    pub symlinks_bytes: usize,
    /// Handles of all three.
    pub handles_bytes: usize,
}

impl ObjectSets {
    /// Sets that hold only a root directory. Its name carries what keeps runs apart, as all other names repeat
    /// from run to run.
    pub fn new(root_name: impl Into<String>, root_weight: u32) -> Self {
        Self {
            root_name: root_name.into(),
            files: Files::default(),
            directories: Directories::with_root(root_weight),
            symlinks: Symlinks::default(),
        }
    }

    /// From now on new names are `maker`'s.
    pub fn number_names_of(&mut self, maker: Maker) {
        self.files.names.of(maker);
        self.directories.names.of(maker);
        self.symlinks.names.of(maker);
    }

    /// Name of the root directory within the export.
    pub fn root_name(&self) -> &str {
        &self.root_name
    }

    // Files

    /// Adds a file under a new name. It cannot be selected while its weight is zero: give the weight when the
    /// server has confirmed the file.
    pub fn insert_file(&mut self, parent: DirectoryId, size_bytes: u64, weight: u32) -> FileId {
        self.directories.count_files(parent, 1);
        self.files.insert(parent, size_bytes, weight)
    }

    /// Removes a file: it is no longer selected, counted or iterated over. Its slot, name and handle last until
    /// the last operation on it has ended.
    pub fn remove_file(&mut self, file: FileId) {
        self.directories.count_files(self.files.parent(file), -1);
        self.files.remove(file);
    }

    /// Moves a file into another directory and gives it a new name.
    pub fn rename_file(&mut self, file: FileId, parent: DirectoryId) -> ObjectName {
        self.directories.count_files(self.files.parent(file), -1);
        self.directories.count_files(parent, 1);
        self.files.rename(file, parent)
    }

    /// Picks a file by popularity; `None` if none has a weight. Choices are made eight at a time, so a weight
    /// that changes counts from the eighth choice after at the latest; a weight of zero counts at once.
    #[inline]
    pub fn select_file(&mut self, rng: &mut impl Rng) -> Option<FileId> {
        self.files.select(rng)
    }

    /// Picks any file, all with equal chance. For removals: victims chosen by popularity would drain the
    /// popular files from the set, and a cache would not choose them either.
    pub fn select_file_uniformly(&self, rng: &mut impl Rng) -> Option<FileId> {
        self.files.select_uniformly(rng)
    }

    /// Files there are.
    pub fn file_count(&self) -> u64 {
        self.files.count()
    }

    /// Bytes in all files together.
    pub fn file_bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// All files, in slot order.
    pub fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.files.ids()
    }

    /// Directory the file is in.
    #[inline]
    pub fn file_parent(&self, file: FileId) -> DirectoryId {
        self.files.parent(file)
    }

    /// Name of the file in its directory.
    #[inline]
    pub fn file_name(&self, file: FileId) -> ObjectName {
        self.files.name(file)
    }

    /// Size of the file, bytes.
    #[inline]
    pub fn file_size_bytes(&self, file: FileId) -> u64 {
        self.files.size_bytes(file)
    }

    /// Changes the size of the file.
    #[inline]
    pub fn set_file_size_bytes(&mut self, file: FileId, size_bytes: u64) {
        self.files.set_size_bytes(file, size_bytes);
    }

    /// Weight of the file, in units of 1/[`crate::WEIGHT_ONE`].
    pub fn file_weight(&self, file: FileId) -> u32 {
        self.files.weight(file)
    }

    /// Changes the weight of the file.
    pub fn set_file_weight(&mut self, file: FileId, weight: u32) {
        self.files.set_weight(file, weight);
    }

    /// Marks of the file.
    #[inline]
    pub fn file_flags(&self, file: FileId) -> FileFlags {
        self.files.flags(file)
    }

    /// Sets or clears a mark of the file.
    #[inline]
    pub fn mark_file(&mut self, file: FileId, flag: FileFlags, on: bool) {
        self.files.mark(file, flag, on);
    }

    /// An operation on the file has been sent: its slot stays as long as it has not ended.
    #[inline]
    pub fn begin_file_op(&mut self, file: FileId) {
        self.files.begin_op(file);
    }

    /// An operation on the file has been answered or given up.
    #[inline]
    pub fn end_file_op(&mut self, file: FileId) {
        self.files.end_op(file);
    }

    /// A request that names the file was sent. Unlike [`Self::begin_file_op`] this does not hold the slot: it says whether the
    /// file may be removed or renamed now without failing a request of ours.
    #[inline]
    pub(crate) fn begin_file_request(&mut self, file: FileId) {
        self.files.begin_request(file);
    }

    /// A request that names the file was answered or given up.
    #[inline]
    pub(crate) fn end_file_request(&mut self, file: FileId) {
        self.files.end_request(file);
    }

    /// Whether a request that names the file is not answered yet.
    #[inline]
    pub(crate) fn is_file_busy(&self, file: FileId) -> bool {
        self.files.has_requests(file)
    }

    /// Operations on the file now in flight.
    #[inline]
    pub fn file_ops_in_flight(&self, file: FileId) -> u32 {
        self.files.in_flight(file)
    }

    /// Handle of the file, once known.
    #[inline]
    pub fn file_handle(&self, file: FileId) -> Option<&[u8]> {
        self.files.handles.handle(file.slot())
    }

    /// Keeps the handle of the file; false if no server may send such a handle.
    #[must_use = "a handle that was not kept cannot be used later"]
    pub fn set_file_handle(&mut self, file: FileId, handle: &[u8]) -> bool {
        self.files.handles.set(file.slot(), handle)
    }

    // Directories

    /// Adds a directory under a new name. See [`Self::insert_file`] for its weight.
    pub fn insert_directory(&mut self, parent: DirectoryId, weight: u32) -> DirectoryId {
        self.directories.insert(parent, weight)
    }

    /// Removes an empty directory; returns false, and does nothing, if it holds something or is the root.
    #[must_use = "a directory that holds something is not removed"]
    pub fn remove_directory(&mut self, directory: DirectoryId) -> bool {
        self.directories.remove(directory)
    }

    /// Picks a directory by popularity.
    #[inline]
    pub fn select_directory(&self, rng: &mut impl Rng) -> Option<DirectoryId> {
        self.directories.select(rng)
    }

    /// Some directory that holds nothing and may be removed, if there is one.
    pub fn take_empty_directory(&mut self) -> Option<DirectoryId> {
        self.directories.take_empty()
    }

    /// Directories there are, the root among them.
    pub fn directory_count(&self) -> u64 {
        self.directories.count()
    }

    /// All directories, in slot order, the root first.
    pub fn directories(&self) -> impl Iterator<Item = DirectoryId> + '_ {
        self.directories.ids()
    }

    /// All directories but the root, children before their parents: the order to remove them in.
    pub fn directories_deepest_first(&self) -> Vec<DirectoryId> {
        self.directories.deepest_first()
    }

    /// Directory this one is in; the root is its own parent.
    #[inline]
    pub fn directory_parent(&self, directory: DirectoryId) -> DirectoryId {
        self.directories.parent(directory)
    }

    /// Name of the directory in its parent. The root has its own, see [`Self::root_name`].
    #[inline]
    pub fn directory_name(&self, directory: DirectoryId) -> ObjectName {
        self.directories.name(directory)
    }

    /// Steps below the root; the root has 0.
    pub fn directory_depth(&self, directory: DirectoryId) -> u16 {
        self.directories.depth(directory)
    }

    /// Files, directories and symbolic links directly in this directory.
    pub fn directory_children(&self, directory: DirectoryId) -> (u32, u32, u32) {
        self.directories.children(directory)
    }

    /// Changes the weight of the directory.
    pub fn set_directory_weight(&mut self, directory: DirectoryId, weight: u32) {
        self.directories.set_weight(directory, weight);
    }

    /// Handle of the directory, once known.
    #[inline]
    pub fn directory_handle(&self, directory: DirectoryId) -> Option<&[u8]> {
        self.directories.handles.handle(directory.slot())
    }

    /// Keeps the handle of the directory; false if no server may send such a handle.
    #[must_use = "a handle that was not kept cannot be used later"]
    pub fn set_directory_handle(&mut self, directory: DirectoryId, handle: &[u8]) -> bool {
        self.directories.handles.set(directory.slot(), handle)
    }

    // Symbolic links

    /// Adds a symbolic link under a new name. See [`Self::insert_file`] for its weight.
    pub fn insert_symlink(&mut self, parent: DirectoryId, weight: u32) -> SymlinkId {
        self.directories.count_symlinks(parent, 1);
        self.symlinks.insert(parent, weight)
    }

    /// Removes a symbolic link.
    pub fn remove_symlink(&mut self, symlink: SymlinkId) {
        self.directories.count_symlinks(self.symlinks.parent(symlink), -1);
        self.symlinks.remove(symlink);
    }

    /// Picks a symbolic link by popularity; `None` if none has a weight.
    #[inline]
    pub fn select_symlink(&self, rng: &mut impl Rng) -> Option<SymlinkId> {
        self.symlinks.select(rng)
    }

    /// Symbolic links there are.
    pub fn symlink_count(&self) -> u64 {
        self.symlinks.count()
    }

    /// All symbolic links, in slot order.
    pub fn symlinks(&self) -> impl Iterator<Item = SymlinkId> + '_ {
        self.symlinks.ids()
    }

    /// Directory the symbolic link is in.
    #[inline]
    pub fn symlink_parent(&self, symlink: SymlinkId) -> DirectoryId {
        self.symlinks.parent(symlink)
    }

    /// Name of the symbolic link in its directory.
    #[inline]
    pub fn symlink_name(&self, symlink: SymlinkId) -> ObjectName {
        self.symlinks.name(symlink)
    }

    /// Changes the weight of the symbolic link.
    pub fn set_symlink_weight(&mut self, symlink: SymlinkId, weight: u32) {
        self.symlinks.set_weight(symlink, weight);
    }

    /// Handle of the symbolic link, once known.
    #[inline]
    pub fn symlink_handle(&self, symlink: SymlinkId) -> Option<&[u8]> {
        self.symlinks.handles.handle(symlink.slot())
    }

    /// Keeps the handle of the symbolic link; false if no server may send such a handle.
    #[must_use = "a handle that was not kept cannot be used later"]
    pub fn set_symlink_handle(&mut self, symlink: SymlinkId, handle: &[u8]) -> bool {
        self.symlinks.handles.set(symlink.slot(), handle)
    }

    /// What all this costs.
    pub fn memory(&self) -> ObjectMemory {
        ObjectMemory {
            files_bytes: self.files.heap_bytes(),
            directories_bytes: self.directories.heap_bytes(),
            symlinks_bytes: self.symlinks.heap_bytes(),
            handles_bytes: self.files.handles.heap_bytes()
                + self.directories.handles.heap_bytes()
                + self.symlinks.handles.heap_bytes(),
        }
    }
}
