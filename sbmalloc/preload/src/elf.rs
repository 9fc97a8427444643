//! The symbol tables of loaded objects, as the dynamic linker reads them.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::slice;

use libc::{Elf64_Phdr, Elf64_Sym};

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

const STT_FUNC: u8 = 2;

/// A loaded object whose symbols can be looked up by name.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    /// What is added to the addresses in its file.
    base: usize,
    headers: &'static [Elf64_Phdr],
    symbols: usize,
    strings: usize,
    hash: usize,
}

/// The hash function of `DT_GNU_HASH`.
const fn hash(name: &[u8]) -> u32 {
    let (mut hash, mut i) = (5381_u32, 0);
    while i < name.len() {
        hash = hash.wrapping_mul(33).wrapping_add(name[i] as u32);
        i += 1;
    }
    hash
}

/// The example that is given wherever the function is described.
const _: () = assert!(hash(b"printf") == 0x156b_2bb8);

impl Object {
    /// Calls `each` for the objects of the program's own namespace, in the order in which symbols are looked
    /// up.
    pub fn for_each(mut each: impl FnMut(Self)) {
        unsafe extern "C" fn found(info: *mut libc::dl_phdr_info, _: usize, each: *mut c_void) -> c_int {
            // SAFETY: the dynamic linker describes a loaded object; the other is the closure below, used by
            // nobody else.
            let (info, each) = unsafe { (&*info, &mut *each.cast::<&mut dyn FnMut(Object)>()) };
            // SAFETY: as the dynamic linker says. The headers are loaded with the object.
            if let Some(object) = unsafe { Object::new(info) } {
                each(object);
            }
            0
        }
        let mut each: &mut dyn FnMut(Self) = &mut each;
        // SAFETY: called with the closure only while this call lasts.
        unsafe { libc::dl_iterate_phdr(Some(found), (&raw mut each).cast()) };
    }

    /// `None` if it has no such table.
    ///
    /// # Safety
    /// Such an object is loaded, and is not unloaded while the result is in use.
    unsafe fn new(info: &libc::dl_phdr_info) -> Option<Self> {
        // SAFETY: the caller's contract.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let mut object = Self { base: info.dlpi_addr as usize, headers, symbols: 0, strings: 0, hash: 0 };
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut at = object.address(dynamic.p_vaddr) as *const [u64; 2];
        loop {
            // SAFETY: a list in the loaded object, that an entry of tag 0 ends.
            let [tag, value] = unsafe { at.read() };
            match tag {
                0 => break,
                DT_STRTAB => object.strings = object.place(value)?,
                DT_SYMTAB => object.symbols = object.place(value)?,
                DT_GNU_HASH => object.hash = object.place(value)?,
                _ => {}
            }
            at = at.wrapping_add(1);
        }
        (object.symbols != 0 && object.strings != 0 && object.hash != 0).then_some(object)
    }

    /// Where something of the file lies in memory.
    pub fn address(&self, in_file: u64) -> usize {
        self.base.wrapping_add(in_file as usize)
    }

    /// The reverse.
    pub fn in_file(&self, address: usize) -> u64 {
        address.wrapping_sub(self.base) as u64
    }

    /// The part of it that is loaded in one piece and contains this address, and its rights.
    pub fn segment(&self, address: usize) -> Option<(Range<usize>, c_int)> {
        let segments = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let (range, header) = segments
            .map(|header| {
                (self.address(header.p_vaddr)..self.address(header.p_vaddr + header.p_memsz), header)
            })
            .find(|(range, _)| range.contains(&address))?;
        let right = |flag, right| if header.p_flags & flag != 0 { right } else { 0 };
        let rights = right(libc::PF_R, libc::PROT_READ)
            | right(libc::PF_W, libc::PROT_WRITE)
            | right(libc::PF_X, libc::PROT_EXEC);
        Some((range, rights))
    }

    pub fn contains(&self, address: usize) -> bool {
        self.segment(address).is_some()
    }

    /// The dynamic linker puts addresses in the place of offsets, but not in the kernel's object (vDSO).
    fn place(&self, value: u64) -> Option<usize> {
        [value as usize, self.address(value)].into_iter().find(|&address| self.contains(address))
    }

    /// The functions of that name that it defines, one for each version.
    pub fn functions(&self, name: &CStr) -> impl Iterator<Item = *mut Elf64_Sym> {
        let (symbols, strings) = (self.symbols as *mut Elf64_Sym, self.strings as *const u8);
        self.hashed(hash(name.to_bytes())).map(move |index| symbols.wrapping_add(index)).filter(
            move |&symbol| {
                // SAFETY: the table has this entry, and a name for it.
                let (symbol, its) = unsafe {
                    let symbol = symbol.read();
                    (symbol, CStr::from_ptr(strings.add(symbol.st_name as usize).cast()))
                };
                its == name && symbol.st_shndx != 0 && symbol.st_info & 15 == STT_FUNC
            },
        )
    }

    /// Indices of symbols whose names have this hash, but for its lowest bit.
    fn hashed(&self, hash: u32) -> impl Iterator<Item = usize> {
        // SAFETY: the table begins with four words: buckets, the first symbol that is in it, and the size of
        // a filter of 64-bit words, which follows and which no answer depends on.
        let [buckets, first, filter, _] = unsafe { (self.hash as *const [u32; 4]).read() };
        let bucket = (self.hash as *const u32).wrapping_add(4 + 2 * filter as usize);
        let chain = bucket.wrapping_add(buckets as usize);
        // SAFETY: one word for each bucket follows: its first symbol, or 0.
        let begin = if buckets == 0 { 0 } else { unsafe { bucket.add((hash % buckets) as usize).read() } };
        let mut next = (begin >= first && begin != 0).then_some(begin);
        let step = move || {
            let index = next?;
            // SAFETY: then a word for each symbol from the first one: its hash, of which bit 0 ends the
            // bucket.
            let its = unsafe { chain.add((index - first) as usize).read() };
            next = (its & 1 == 0).then_some(index + 1);
            Some((index as usize, its))
        };
        std::iter::from_fn(step).filter(move |&(_, its)| its | 1 == hash | 1).map(|(index, _)| index)
    }
}
