/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariants: (1) a file is used only if its build-id, or the checksum of its bytes, is the
 *                 requested one  [test-debug-files: wrong]
 *             (2) with a sysroot nothing outside of it is opened, except in debug folders
 *                 [test-debug-files: sysroot]
 *             (3) only regular files are opened  [test-debug-files: pipe]
 *             (4) the bytes that are unpacked, or that libdw reads into memory, are bounded
 *             (5) other roots are not searched for an image whose file is at its path on this
 *                 machine
 *                 [test-debug-files: other]
 *             (6) a debug file is not fetched if it is found, or if the image itself has DWARF
 *                 [test-debug-files: fetch]
 */
#include "tools/symbols/debug-files.h"

#include "arch/base.h"
#include "arch/regular-file.h"
#include "tools/symbols/debug-split.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <glib.h>
#include <lzma.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_SECTIONS_BYTES (UINT64_C(4) << 30)
#define MAX_UNPACKED_BYTES (UINT64_C(256) << 20)
#define MAX_LZMA_BYTES (UINT64_C(128) << 20)
#define USUAL_FOLDER "/usr/lib/debug"

struct debug_files {
	int root; /* AT_FDCWD: none */
	GPtrArray *folders;
	GPtrArray *others;        /* struct debug_files with only a sysroot */
	debug_files_fetch *fetch; /* NULL: fetch nothing */
	void *fetch_data;
};

void debug_files_free(struct debug_files *files)
{
	if (!files)
		return;
	if (files->root >= 0)
		close(files->root);
	g_ptr_array_unref(files->folders);
	g_ptr_array_unref(files->others);
	g_free(files);
}

struct debug_files *debug_files_new(const char *sysroot, const char *const *folders)
{
	struct debug_files *files;
	int root = AT_FDCWD;

	if (sysroot) {
		root = open(sysroot, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0)
			return NULL;
	}
	files = g_new0(struct debug_files, 1);
	files->root = root;
	files->folders = g_ptr_array_new_with_free_func(g_free);
	files->others = g_ptr_array_new_with_free_func((GDestroyNotify)debug_files_free);
	for (size_t i = 0; folders && folders[i]; i++)
		g_ptr_array_add(files->folders, g_strdup(folders[i]));
	return files;
}

void debug_files_add_other(struct debug_files *files, struct debug_files *other)
{
	if (files->root < 0)
		g_ptr_array_add(files->others, other);
	else
		debug_files_free(other);
}

void debug_files_set_fetch(struct debug_files *files, debug_files_fetch *fetch, void *data)
{
	files->fetch = fetch;
	files->fetch_data = data;
}

/* ---- opening --------------------------------------------------------------------------------- */

int debug_files_open_path(const struct debug_files *files, const char *path)
{
	if (!path || path[0] != '/')
		return -1;
	return MAX_OF(regular_file_open(files->root < 0 ? -1 : files->root, path), -1);
}

int debug_files_open_below(const struct debug_files *files, const char *name, unsigned int *at,
			   char **ret_path)
{
	for (; *at <= files->folders->len; (*at)++) {
		bool usual = *at == files->folders->len;
		g_autofree char *path = g_build_filename(
			usual ? USUAL_FOLDER : files->folders->pdata[*at], name, NULL);
		int fd = usual ? debug_files_open_path(files, path) : regular_file_open(-1, path);

		if (fd < 0)
			continue;
		(*at)++;
		if (ret_path)
			*ret_path = g_steal_pointer(&path);
		return fd;
	}
	return -1;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The proof that a file is the wanted one: its build-id or, if `id` is NULL, the checksum of its
 * bytes. */
struct proof {
	const void *id;
	size_t id_size;
	uint32_t checksum;
};

static bool has_checksum(int fd, uint32_t wanted)
{
	g_autofree uint8_t *bytes = g_malloc(1 << 20);
	uint32_t sum = 0;
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, bytes, 1 << 20, at)) > 0) {
		sum = lzma_crc32(bytes, (size_t)n, sum);
		at += n;
	}
	return n == 0 && sum == wanted;
}

/* Returns the file if it fits `proof`, else NULL. Takes ownership of fd, which may be -1. */
static struct elf_image *accept_file(int fd, const struct proof *proof)
{
	CLEANUP_ELF struct elf_image *elf = elf_image_take(fd);
	const void *id;

	if (!elf)
		return NULL;
	if (proof->id)
		return elf_image_get_build_id(elf, &id) == proof->id_size &&
				       memcmp(id, proof->id, proof->id_size) == 0
			       ? steal_ptr(&elf)
			       : NULL;
	return has_checksum(fd, proof->checksum) ? steal_ptr(&elf) : NULL;
}

struct elf_image *debug_files_check(int fd, const uint8_t *id, size_t size)
{
	const struct proof proof = { .id = id, .id_size = size };
	struct stat status;

	if (fd < 0 || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)))
		return accept_file(fd, &proof);
	close(fd);
	return NULL;
}

static struct elf_image *find_at(const struct debug_files *files, char *path,
				 const struct proof *proof, char **ret_path)
{
	struct elf_image *elf = accept_file(debug_files_open_path(files, path), proof);

	*ret_path = elf ? g_strdup(path) : NULL;
	return elf;
}

static struct elf_image *find_below(const struct debug_files *files, const char *name,
				    const struct proof *proof, char **ret_path)
{
	struct elf_image *elf = NULL;
	guint at = 0;
	int fd;

	while (!elf && (fd = debug_files_open_below(files, name, &at, ret_path)) >= 0) {
		elf = accept_file(fd, proof);
		if (!elf)
			g_clear_pointer(ret_path, g_free);
	}
	return elf;
}

static struct elf_image *find_by_build_id(const struct debug_files *files, const uint8_t *id,
					  size_t size, char **ret_path)
{
	const struct proof proof = { .id = id, .id_size = size };
	g_autoptr(GString) name = g_string_new(".build-id/");

	if (size < 2)
		return NULL;
	for (size_t i = 0; i < size; i++)
		g_string_append_printf(name, i == 0 ? "%02x/" : "%02x", id[i]);
	g_string_append(name, ".debug");
	return find_below(files, name->str, &proof, ret_path);
}

static struct elf_image *fetch_by_build_id(const struct debug_files *files, const uint8_t *id,
					   size_t size, char **ret_path)
{
	return files->fetch && size >= 2 ? files->fetch(id, size, ret_path, files->fetch_data)
					 : NULL;
}

static struct elf_image *find_by_link(const struct debug_files *files,
				      const struct elf_image *image, const char *path,
				      char **ret_path)
{
	struct proof proof = { .id = NULL };
	const char *name = dwelf_elf_gnu_debuglink(image->elf, &proof.checksum);
	g_autofree char *folder = path && path[0] == '/' ? g_path_get_dirname(path) : NULL;
	g_autofree char *beside = NULL, *hidden = NULL;
	struct elf_image *elf;

	if (!name || !name[0] || strchr(name, '/') || !folder)
		return NULL;
	beside = g_build_filename(folder, name, NULL);
	hidden = g_build_filename(folder, ".debug", name, NULL);
	elf = find_at(files, beside, &proof, ret_path);
	if (!elf)
		elf = find_at(files, hidden, &proof, ret_path);
	return elf ? elf : find_below(files, beside, &proof, ret_path);
}

/* ---- DWARF ----------------------------------------------------------------------------------- */

/* Hides the sections that no name or line needs, often a quarter of a file's DWARF, because libdw
 * unpacks all sections. */
static void hide_unused(const struct elf_image *elf)
{
	static const char *const unused[] = { ".debug_aranges",  ".debug_frame",
					      ".debug_loc",      ".debug_loclists",
					      ".debug_macinfo",  ".debug_macro",
					      ".debug_pubnames", NULL };
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf->elf, &names) != 0)
		return;
	while ((section = elf_nextscn(elf->elf, section))) {
		const char *name;
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header))
			continue;
		name = elf_image_get_string(elf, names, header.sh_name);
		if (name && g_strv_contains(unused, name)) {
			header.sh_type = SHT_NOBITS; /* in memory only */
			gelf_update_shdr(section, &header);
		}
	}
}

/* Checks the sizes, because libdw reads whole sections into memory and unpacks compressed ones. */
bool debug_files_can_hold(const struct elf_image *elf)
{
	uint64_t total = 0;
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf->elf, section))) {
		GElf_Chdr compressed;
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header) || header.sh_type == SHT_NOBITS)
			continue;
		if ((header.sh_flags & SHF_COMPRESSED) && gelf_getchdr(section, &compressed))
			header.sh_size = compressed.ch_size;
		if (!add_u64(total, header.sh_size, &total) || total > MAX_SECTIONS_BYTES)
			return false;
	}
	return true;
}

static bool has_dwarf(const struct elf_image *elf)
{
	GElf_Shdr found;

	return elf_image_get_section(elf, ".debug_info", &found) ||
	       elf_image_get_section(elf, ".zdebug_info", &found);
}

static Dwarf *open_dwarf(const struct elf_image *elf)
{
	if (!has_dwarf(elf))
		return NULL;
	hide_unused(elf);
	return debug_files_can_hold(elf) ? dwarf_begin_elf(elf->elf, DWARF_C_READ, NULL) : NULL;
}

/* Finds the shared DWARF by its name, relative to the file that refers to it, or else by its
 * build-id. */
static struct elf_image *find_shared(const struct debug_files *files, const char *name,
				     const char *path, const void *id, size_t id_size,
				     char **ret_path)
{
	const struct proof proof = { .id = id, .id_size = id_size };
	g_autofree char *folder = path ? g_path_get_dirname(path) : NULL;
	g_autofree char *near = name[0] == '/' || !folder ? g_strdup(name)
							  : g_build_filename(folder, name, NULL);
	struct elf_image *elf = find_at(files, near, &proof, ret_path);

	/* A debug file in a folder outside of the sysroot may refer to a file beside it. */
	if (!elf && files->root >= 0 && files->folders->len > 0 && name[0] != '/') {
		elf = accept_file(regular_file_open(-1, near), &proof);
		*ret_path = elf ? g_steal_pointer(&near) : NULL;
	}
	if (!elf)
		elf = find_by_build_id(files, id, id_size, ret_path);
	return elf ? elf : fetch_by_build_id(files, id, id_size, ret_path);
}

/* Returns false if the DWARF's shared part is missing, because the rest would be incomplete. */
static bool add_shared(const struct debug_files *files, struct debug_file *file, const char *path)
{
	const char *name;
	const void *id;
	ssize_t id_size = dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &id);

	if (id_size <= 0 || !files)
		return id_size == 0;
	file->shared = g_new0(struct debug_file, 1);
	file->shared->elf =
		find_shared(files, name, path, id, (size_t)id_size, &file->shared->path);
	if (file->shared->elf)
		file->shared->dwarf = open_dwarf(file->shared->elf);
	if (file->shared->dwarf)
		dwarf_setalt(file->dwarf, file->shared->dwarf);
	return file->shared->dwarf != NULL;
}

void debug_file_free(struct debug_file *file)
{
	if (!file)
		return;
	debug_split_free(file->split);
	dwarf_end(file->dwarf);
	debug_file_free(file->shared);
	elf_image_free(file->elf);
	g_free(file->path);
	g_free(file);
}

static bool find_here(const struct debug_files *files, struct debug_file *file,
		      const struct elf_image *image, const char *path)
{
	const void *id;
	size_t size = elf_image_get_build_id(image, &id);

	file->files = files;
	file->elf = find_by_build_id(files, id, size, &file->path);
	if (!file->elf)
		file->elf = find_by_link(files, image, path, &file->path);
	return file->elf;
}

static bool find_in_others(const struct debug_files *files, struct debug_file *file,
			   const struct elf_image *image, const char *path)
{
	CLEANUP_CLOSE int fd = files->others->len ? debug_files_open_path(files, path) : -1;
	struct stat here, its;
	/* Do not search other roots if the file at the path on this machine is the image itself. */
	bool is_here = fd >= 0 && fstat(fd, &here) == 0 && fstat(image->fd, &its) == 0 &&
		       here.st_dev == its.st_dev && here.st_ino == its.st_ino;

	for (guint i = 0; !is_here && i < files->others->len; i++)
		if (find_here(files->others->pdata[i], file, image, path))
			return true;
	file->files = files;
	return false;
}

struct debug_file *debug_files_find(const struct debug_files *files, const struct elf_image *image,
				    const char *path, bool symbols_only)
{
	struct debug_file *file = g_new0(struct debug_file, 1);
	const void *id;
	size_t size = elf_image_get_build_id(image, &id);

	if (files && !find_here(files, file, image, path) && !has_dwarf(image) &&
	    !find_in_others(files, file, image, path))
		file->elf = fetch_by_build_id(files, id, size, &file->path);
	if (file->elf && !symbols_only)
		file->dwarf = open_dwarf(file->elf);
	if (!file->dwarf && !symbols_only)
		file->dwarf = open_dwarf(image);
	if (file->dwarf && !add_shared(file->files, file, file->path ? file->path : path)) {
		dwarf_end(file->dwarf);
		file->dwarf = NULL;
	}
	if (file->dwarf && files)
		file->split = debug_split_new(file->files, file->dwarf, path, file->path);
	if (file->elf || file->dwarf)
		return file;
	debug_file_free(file);
	return NULL;
}

/* ---- symbols packed into the file itself ----------------------------------------------------- */

/* Unpacks all of `data` into the file. Returns false if it is not a complete xz stream, or is too
 * large. */
static bool unpack(const Elf_Data *data, int fd)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	g_autofree uint8_t *bytes = g_malloc(1 << 20);
	lzma_ret r = lzma_stream_decoder(&stream, MAX_LZMA_BYTES, 0);
	bool ok = r == LZMA_OK;

	stream.next_in = data->d_buf;
	stream.avail_in = data->d_size;
	while (ok && r == LZMA_OK) {
		size_t n;

		stream.next_out = bytes;
		stream.avail_out = 1 << 20;
		r = lzma_code(&stream, LZMA_FINISH);
		n = (1 << 20) - stream.avail_out;
		ok = (r == LZMA_OK || r == LZMA_STREAM_END) &&
		     stream.total_out <= MAX_UNPACKED_BYTES && write(fd, bytes, n) == (ssize_t)n;
	}
	lzma_end(&stream);
	return ok;
}

struct elf_image *debug_files_unpack(const struct elf_image *image)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_image_get_section(image, ".gnu_debugdata", &header);
	Elf_Data *data = section ? elf_image_get_data(image, section) : NULL;
	CLEANUP_CLOSE int fd = data ? memfd_create("debugdata", MFD_CLOEXEC) : -1;

	if (fd < 0 || !unpack(data, fd))
		return NULL;
	return elf_image_take(steal_fd(&fd));
}
