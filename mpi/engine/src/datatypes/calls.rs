//! The calls.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bdrun_mpi_core::datatype::{Combiner, Contents, Datatype as Tree, Grid, Told, Type, TypeError};
use bdrun_mpi_core::error::Class;

use super::arguments::{
    blocks, combiner, counted, distribution, external, external_bytes, lengths, numbers, room, some, tell,
    width,
};
use super::{Object, arguments, predefined};
use crate::Mpi;
use crate::args::{Buffer, Handles, Ints, IntsOut, Meant, Status};
use crate::calls::Datatypes;
use crate::face::{Kind, Meaning};
use crate::failure::Answer;
use crate::groups::UNDEFINED;
use crate::handle::{Comm, Datatype};

impl Mpi {
    /// The datatype of a handle, committed or not.
    pub(crate) fn tree(&self, handle: Datatype) -> Answer<Type> {
        Ok(self.types.get(handle)?.of.clone())
    }

    /// The handle of what was made, if it was.
    fn made(&self, made: Result<Type, TypeError>) -> Answer<Datatype> {
        Ok(self.types.add(made?))
    }
}

impl Mpi {
    /// The integers that a datatype was made of, as the program's ABI has those that mean something.
    fn meant(&self, of: &Type, contents: &Contents) -> Vec<i64> {
        let mut numbers = contents.integers.clone();
        let face = self.face();
        let mut mean = |range: std::ops::Range<usize>, meaning| {
            for number in numbers.get_mut(range).into_iter().flatten() {
                *number = (face.number)(meaning, *number).into();
            }
        };
        let last = contents.integers.len().saturating_sub(1);
        match of.combiner() {
            Combiner::Subarray => mean(last..last + 1, Meaning::Order),
            Combiner::Darray => {
                let n = contents.integers[2] as usize;
                // Behind the number of processes, the rank and the number of dimensions the sizes, if those
                // are integers, too.
                let first = if contents.counts.is_empty() { 3 + n } else { 3 };
                mean(first..first + n, Meaning::Distribution);
                mean(first + n..first + 2 * n, Meaning::Darg);
                mean(last..last + 1, Meaning::Order);
            }
            _ => {}
        }
        numbers
    }
}

impl Datatypes for Mpi {
    unsafe fn aint_add(&self, base: i64, disp: i64) -> Answer<i64> {
        Ok(base.wrapping_add(disp))
    }

    unsafe fn aint_diff(&self, addr1: i64, addr2: i64) -> Answer<i64> {
        Ok(addr1.wrapping_sub(addr2))
    }

    unsafe fn get_address(&self, location: *mut c_void) -> Answer<i64> {
        Ok(location as i64)
    }

    unsafe fn get_count(&self, status: Status, datatype: Datatype) -> Answer<i64> {
        Ok(match self.tree(datatype)?.size() {
            _ if status.count == 0 => 0,
            0 => UNDEFINED,
            size if status.count % size == 0 => status.count / size,
            _ => UNDEFINED,
        })
    }

    unsafe fn get_elements(&self, status: Status, datatype: Datatype) -> Answer<i64> {
        Ok(self.tree(datatype)?.elements_in(status.count).unwrap_or(UNDEFINED))
    }

    unsafe fn get_elements_x(&self, status: Status, datatype: Datatype) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { self.get_elements(status, datatype) }
    }

    unsafe fn pack(
        &self,
        inbuf: Buffer,
        incount: i64,
        datatype: Datatype,
        outbuf: Buffer,
        outsize: i64,
        position: i64,
        comm: Comm,
    ) -> Answer<i64> {
        some(comm)?;
        let span = self.span(inbuf, incount, datatype)?;
        let bytes = span.bytes() as i64;
        let to = room(outbuf, outsize, position, bytes)?;
        if bytes > 0 {
            // SAFETY: the caller's: so many bytes of the program's, and not those that are packed.
            unsafe { span.pack(0, std::slice::from_raw_parts_mut(to, bytes as usize)) };
        }
        Ok(position + bytes)
    }

    unsafe fn pack_external(
        &self,
        datarep: *const c_char,
        inbuf: Buffer,
        incount: i64,
        datatype: Datatype,
        outbuf: Buffer,
        outsize: i64,
        position: i64,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { external(datarep) }?;
        let span = self.span(inbuf, incount, datatype)?;
        let bytes = external_bytes(span.of(), span.count())?;
        let to = room(outbuf, outsize, position, bytes)?;
        let mut packed = Vec::with_capacity(bytes as usize);
        // SAFETY: the caller's: `to` has room for so many bytes, which are not those that are packed.
        unsafe {
            span.of().pack_external(span.at(), span.count(), &mut packed);
            std::ptr::copy_nonoverlapping(packed.as_ptr(), to, packed.len());
        }
        Ok(position + bytes)
    }

    unsafe fn pack_external_size(
        &self,
        datarep: *const c_char,
        incount: i64,
        datatype: Datatype,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { external(datarep) }?;
        let of = self.types.committed(datatype)?;
        counted(incount)?;
        external_bytes(&of, incount)
    }

    unsafe fn pack_size(&self, incount: i64, datatype: Datatype, comm: Comm) -> Answer<i64> {
        some(comm)?;
        let of = self.types.committed(datatype)?;
        counted(incount)?;
        Ok(of.size().checked_mul(incount).unwrap_or(UNDEFINED))
    }

    unsafe fn type_commit(&self, datatype: Datatype) -> Answer<Datatype> {
        let object = self.types.get(datatype)?;
        // Flattened now, not when the first message waits for it.
        let _ = object.of.layout();
        object.committed.store(true, Ordering::Relaxed);
        Ok(datatype)
    }

    unsafe fn type_contiguous(&self, count: i64, oldtype: Datatype, large: bool) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        self.made(Tree::contiguous(count, &of, width(large)))
    }

    unsafe fn type_create_darray(
        &self,
        size: i64,
        rank: i64,
        ndims: i64,
        array_of_gsizes: Ints,
        array_of_distribs: Meant,
        array_of_dargs: Meant,
        array_of_psizes: Ints,
        order: i64,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        let n = usize::try_from(ndims).ok().filter(|&n| n > 0).ok_or(Class::Dims)?;
        if array_of_distribs.is_null() || array_of_dargs.is_null() {
            return Err(Class::Arg.into());
        }
        // SAFETY: the caller's: each has as many as there are dimensions.
        let (sizes, processes) = unsafe { (numbers(n, array_of_gsizes)?, numbers(n, array_of_psizes)?) };
        let mut told = Told { order, ..Told::default() };
        let mut grid = vec![];
        for (i, (size, processes)) in sizes.into_iter().zip(processes).enumerate() {
            // SAFETY: as above.
            let (kind, argument) = unsafe { (array_of_distribs.get(i)?, array_of_dargs.get(i)?) };
            grid.push(Grid { size, distribution: distribution(kind, argument)?, processes });
            told.distributions.push(kind);
            told.arguments.push(argument);
        }
        self.made(Tree::darray(size, rank, &grid, arguments::order(order)?, &told, &of, width(large)))
    }

    unsafe fn type_create_f90_complex(&self, p: i64, r: i64) -> Answer<Datatype> {
        let basic = predefined::complex(p, r).ok_or(Class::Arg)?;
        Ok(self.types.find(basic, Combiner::F90Complex, &[p, r]))
    }

    unsafe fn type_create_f90_integer(&self, r: i64) -> Answer<Datatype> {
        let basic = predefined::integer(r).ok_or(Class::Arg)?;
        Ok(self.types.find(basic, Combiner::F90Integer, &[r]))
    }

    unsafe fn type_create_f90_real(&self, p: i64, r: i64) -> Answer<Datatype> {
        let basic = predefined::real(p, r).ok_or(Class::Arg)?;
        Ok(self.types.find(basic, Combiner::F90Real, &[p, r]))
    }

    unsafe fn type_create_hindexed(
        &self,
        count: i64,
        array_of_blocklengths: Ints,
        array_of_displacements: Ints,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        // SAFETY: the caller's.
        let blocks = unsafe { blocks(counted(count)?, array_of_blocklengths, array_of_displacements) }?;
        self.made(Tree::hindexed(&blocks, &of, width(large)))
    }

    unsafe fn type_create_hindexed_block(
        &self,
        count: i64,
        blocklength: i64,
        array_of_displacements: Ints,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        counted(blocklength)?;
        // SAFETY: the caller's.
        let at = unsafe { numbers(counted(count)?, array_of_displacements) }?;
        self.made(Tree::hindexed_block(blocklength, &at, &of, width(large)))
    }

    unsafe fn type_create_hvector(
        &self,
        count: i64,
        blocklength: i64,
        stride: i64,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        self.made(Tree::hvector(count, blocklength, stride, &of, width(large)))
    }

    unsafe fn type_create_indexed_block(
        &self,
        count: i64,
        blocklength: i64,
        array_of_displacements: Ints,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        counted(blocklength)?;
        // SAFETY: the caller's.
        let at = unsafe { numbers(counted(count)?, array_of_displacements) }?;
        self.made(Tree::indexed_block(blocklength, &at, &of, width(large)))
    }

    unsafe fn type_create_resized(
        &self,
        oldtype: Datatype,
        lb: i64,
        extent: i64,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        self.made(Tree::resized(&of, lb, extent, width(large)))
    }

    unsafe fn type_create_struct(
        &self,
        count: i64,
        array_of_blocklengths: Ints,
        array_of_displacements: Ints,
        array_of_types: Handles<Datatype>,
        large: bool,
    ) -> Answer<Datatype> {
        let n = counted(count)?;
        // SAFETY: the caller's.
        let blocks = unsafe { blocks(n, array_of_blocklengths, array_of_displacements) }?;
        if n > 0 && array_of_types.is_null() {
            return Err(Class::Arg.into());
        }
        let mut parts = vec![];
        for (i, block) in blocks.into_iter().enumerate() {
            // SAFETY: the caller's: there are as many.
            parts.push((block, self.tree(unsafe { array_of_types.get(i) }?)?));
        }
        self.made(Tree::structure(&parts, width(large)))
    }

    unsafe fn type_create_subarray(
        &self,
        ndims: i64,
        array_of_sizes: Ints,
        array_of_subsizes: Ints,
        array_of_starts: Ints,
        order: i64,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        let n = usize::try_from(ndims).ok().filter(|&n| n > 0).ok_or(Class::Dims)?;
        // SAFETY: the caller's: each has as many as there are dimensions.
        let (sizes, parts) = unsafe { (numbers(n, array_of_sizes)?, numbers(n, array_of_subsizes)?) };
        // SAFETY: as above.
        let starts = unsafe { numbers(n, array_of_starts) }?;
        let all = sizes.into_iter().zip(parts).zip(starts).map(|((size, part), start)| (size, part, start));
        let all: Vec<(i64, i64, i64)> = all.collect();
        self.made(Tree::subarray(&all, arguments::order(order)?, order, &of, width(large)))
    }

    unsafe fn type_dup(&self, oldtype: Datatype) -> Answer<Datatype> {
        let old = self.types.get(oldtype)?;
        // SAFETY: the caller's: the functions of attributes are such.
        let attributes =
            unsafe { self.types.keys.copy(&old.attributes, self.whose(Kind::Datatype, oldtype)) }?;
        let copy = Object { attributes, ..Object::new(Tree::dup(&old.of)) };
        copy.committed.store(old.is_committed(), Ordering::Relaxed);
        Ok(self.types.made.add(Arc::new(copy)))
    }

    unsafe fn type_free(&self, datatype: Datatype) -> Answer<Datatype> {
        let object = self.types.get(datatype)?;
        if object.permanent || object.is_freed.load(Ordering::SeqCst) {
            return Err(Class::Type.into());
        }
        // SAFETY: the caller's: the functions of attributes are such.
        unsafe { self.types.keys.delete_all(&object.attributes, self.whose(Kind::Datatype, datatype)) }?;
        self.types.free(datatype, object)?;
        Ok(Datatype::NULL)
    }

    unsafe fn type_get_contents(
        &self,
        datatype: Datatype,
        max_integers: i64,
        max_addresses: i64,
        max_datatypes: i64,
        array_of_integers: IntsOut,
        array_of_addresses: IntsOut,
        array_of_datatypes: Handles<Datatype>,
    ) -> Answer<()> {
        if lengths(&self.tree(datatype)?)[2] > 0 {
            return Err(Class::Type.into());
        }
        // SAFETY: the caller's; there are no counts to write.
        unsafe {
            self.type_get_contents_c(
                datatype,
                max_integers,
                max_addresses,
                0,
                max_datatypes,
                array_of_integers,
                array_of_addresses,
                IntsOut::large(std::ptr::null_mut()),
                array_of_datatypes,
            )
        }
    }

    unsafe fn type_get_contents_c(
        &self,
        datatype: Datatype,
        max_integers: i64,
        max_addresses: i64,
        max_large_counts: i64,
        max_datatypes: i64,
        array_of_integers: IntsOut,
        array_of_addresses: IntsOut,
        array_of_large_counts: IntsOut,
        array_of_datatypes: Handles<Datatype>,
    ) -> Answer<()> {
        let of = self.tree(datatype)?;
        let contents = of.contents().ok_or(Class::Type)?;
        let most = [max_integers, max_addresses, max_large_counts, max_datatypes];
        let nulls = [
            array_of_integers.is_null(),
            array_of_addresses.is_null(),
            array_of_large_counts.is_null(),
            array_of_datatypes.is_null(),
        ];
        for ((len, most), is_null) in lengths(&of).into_iter().zip(most).zip(nulls) {
            if len > most || (len > 0 && is_null) {
                return Err(Class::Arg.into());
            }
        }
        // SAFETY: the caller's: there is room for as many as it said.
        unsafe {
            tell(&self.meant(&of, contents), array_of_integers);
            tell(&contents.addresses, array_of_addresses);
            tell(&contents.counts, array_of_large_counts);
            for (i, of) in contents.types.iter().enumerate() {
                array_of_datatypes.set(i, self.types.again(of));
            }
        }
        Ok(())
    }

    unsafe fn type_get_envelope(&self, datatype: Datatype) -> Answer<(i64, i64, i64, i64)> {
        let of = self.tree(datatype)?;
        match lengths(&of) {
            [integers, addresses, 0, types] => Ok((integers, addresses, types, combiner(of.combiner()))),
            _ => Err(Class::Type.into()),
        }
    }

    unsafe fn type_get_envelope_c(&self, datatype: Datatype) -> Answer<(i64, i64, i64, i64, i64)> {
        let of = self.tree(datatype)?;
        let [integers, addresses, counts, types] = lengths(&of);
        Ok((integers, addresses, counts, types, combiner(of.combiner())))
    }

    unsafe fn type_get_extent(&self, datatype: Datatype) -> Answer<(i64, i64)> {
        let of = self.tree(datatype)?;
        Ok((of.lower_bound(), of.extent()))
    }

    unsafe fn type_get_extent_x(&self, datatype: Datatype) -> Answer<(i64, i64)> {
        // SAFETY: the caller's.
        unsafe { self.type_get_extent(datatype) }
    }

    unsafe fn type_get_true_extent(&self, datatype: Datatype) -> Answer<(i64, i64)> {
        let of = self.tree(datatype)?;
        Ok((of.true_lower_bound(), of.true_extent()))
    }

    unsafe fn type_get_true_extent_x(&self, datatype: Datatype) -> Answer<(i64, i64)> {
        // SAFETY: the caller's.
        unsafe { self.type_get_true_extent(datatype) }
    }

    unsafe fn type_get_value_index(&self, value_type: Datatype, index_type: Datatype) -> Answer<Datatype> {
        let (value, index) = (self.tree(value_type)?, self.tree(index_type)?);
        let basics = value.as_basic().zip(index.as_basic()).ok_or(Class::Type)?;
        // Pairs without a name are not supported, as the standard allows.
        Ok(predefined::pair(basics.0, basics.1).map_or(Datatype::NULL, predefined::handle))
    }

    unsafe fn type_indexed(
        &self,
        count: i64,
        array_of_blocklengths: Ints,
        array_of_displacements: Ints,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        // SAFETY: the caller's.
        let blocks = unsafe { blocks(counted(count)?, array_of_blocklengths, array_of_displacements) }?;
        self.made(Tree::indexed(&blocks, &of, width(large)))
    }

    unsafe fn type_match_size(&self, typeclass: i64, size: i64) -> Answer<Datatype> {
        predefined::of_size(typeclass, size).map(predefined::handle).ok_or_else(|| Class::Arg.into())
    }

    unsafe fn type_size(&self, datatype: Datatype) -> Answer<i64> {
        Ok(self.tree(datatype)?.size())
    }

    unsafe fn type_size_x(&self, datatype: Datatype) -> Answer<i64> {
        Ok(self.tree(datatype)?.size())
    }

    unsafe fn type_vector(
        &self,
        count: i64,
        blocklength: i64,
        stride: i64,
        oldtype: Datatype,
        large: bool,
    ) -> Answer<Datatype> {
        let of = self.tree(oldtype)?;
        self.made(Tree::vector(count, blocklength, stride, &of, width(large)))
    }

    unsafe fn unpack(
        &self,
        inbuf: Buffer,
        insize: i64,
        position: i64,
        outbuf: Buffer,
        outcount: i64,
        datatype: Datatype,
        comm: Comm,
    ) -> Answer<i64> {
        some(comm)?;
        let span = self.span(outbuf, outcount, datatype)?;
        let bytes = span.bytes() as i64;
        let from = room(inbuf, insize, position, bytes)?;
        if bytes > 0 {
            // SAFETY: the caller's: so many bytes of the program's, and not those that are written.
            unsafe { span.unpack(0, std::slice::from_raw_parts(from, bytes as usize)) };
        }
        Ok(position + bytes)
    }

    unsafe fn unpack_external(
        &self,
        datarep: *const c_char,
        inbuf: Buffer,
        insize: i64,
        position: i64,
        outbuf: Buffer,
        outcount: i64,
        datatype: Datatype,
    ) -> Answer<i64> {
        // SAFETY: the caller's.
        unsafe { external(datarep) }?;
        let span = self.span(outbuf, outcount, datatype)?;
        let bytes = external_bytes(span.of(), span.count())?;
        let from = room(inbuf, insize, position, bytes)?;
        if bytes > 0 {
            // SAFETY: the caller's: so many bytes of the program's, and not those that are written.
            unsafe {
                let packed = std::slice::from_raw_parts(from, bytes as usize);
                span.of().unpack_external(span.at(), span.count(), packed);
            }
        }
        Ok(position + bytes)
    }
}
