/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Machine counters - what the kernel counts for the whole machine, for its devices, or for a cgroup
 *
 * The broker opens the files, and they are read again and again from the same descriptors. A value
 * is valid until the next one, so a value that has not changed is not written again; before a new
 * value, the last reading of the old one is written, so that a rate covers only the last interval.
 * A device's counter is not listed before it has a value other than 0. Sums keep the kernel's
 * origin, such as the start of the machine, because readers use differences.
 * If reading takes long, it is done less often: reading takes at most 1/SHARE of the time.
 * Invariants: (1) after a counter's first value, reading allocates nothing
 *                 [test-engine-machine-counters: steady]
 *             (2) text that is not as expected gives no value  [fuzz_counters]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/machine-counters.h"

#include "arch/base.h"
#include "base/clock.h"
#include "base/each.h"
#include "base/order.h"

#include <ctype.h>
#include <string.h>

#define INTERVAL_NS UINT64_C(100000000)
#define SHARE 250
#define IDLE_READINGS 10 /* a file without counters is read once per this many readings */
#define TEXT_BYTES (256u << 10)
#define MAX_COUNTERS 4096u
#define MAX_VALUES 65536u

/* The meaning of a number in a file. */
struct counter_spec {
	const char *key; /* the word before the number, in files of names and numbers */
	/* counter's name; for a device, the part after the device's name (NULL: no such part) */
	const char *what;
	const char *group, *unit;
	double scale;
	enum prof_counter_kind kind;
};

#define SUM(key, what, group, unit, scale)                      \
	{                                                       \
		key, what, group, unit, scale, PROF_COUNTER_SUM \
	}
#define GAUGE(key, what, group, unit, scale)                      \
	{                                                         \
		key, what, group, unit, scale, PROF_COUNTER_GAUGE \
	}
#define TICK_NS 1e7 /* unit of /proc/stat: USER_HZ is 100 on all architectures that we support */

/* In the order of the line "cpu" in /proc/stat; guest time is part of user time. */
static const struct counter_spec modes[] = {
	SUM(NULL, "user", "cpu", "ns", TICK_NS),    SUM(NULL, "nice", "cpu", "ns", TICK_NS),
	SUM(NULL, "system", "cpu", "ns", TICK_NS),  SUM(NULL, "idle", "cpu", "ns", TICK_NS),
	SUM(NULL, "iowait", "cpu", "ns", TICK_NS),  SUM(NULL, "irq", "cpu", "ns", TICK_NS),
	SUM(NULL, "softirq", "cpu", "ns", TICK_NS), SUM(NULL, "steal", "cpu", "ns", TICK_NS),
};
static const struct counter_spec busy = SUM(NULL, "busy", "cpu", "ns", TICK_NS);
static const struct counter_spec stat_keys[] = {
	SUM("ctxt", "context switches", "cpu", "", 1),
	SUM("processes", "forks", "cpu", "", 1),
	GAUGE("procs_running", "running", "cpu", "threads", 1),
	GAUGE("procs_blocked", "blocked", "cpu", "threads", 1),
	{ NULL },
};
static const struct counter_spec memory_keys[] = {
	GAUGE("MemFree", "free", "memory", "bytes", 1024),
	GAUGE("MemAvailable", "available", "memory", "bytes", 1024),
	GAUGE("Cached", "cached", "memory", "bytes", 1024),
	GAUGE("Dirty", "dirty", "memory", "bytes", 1024),
	GAUGE("Writeback", "writeback", "memory", "bytes", 1024),
	GAUGE("AnonPages", "anonymous", "memory", "bytes", 1024),
	{ NULL },
};
static const struct counter_spec swap_used = GAUGE(NULL, "swap used", "memory", "bytes", 1024);
static const struct counter_spec vm_keys[] = {
	SUM("pgfault", "page faults", "memory", "", 1),
	SUM("pgmajfault", "major faults", "memory", "", 1),
	SUM("pswpin", "swapped in", "memory", "pages", 1),
	SUM("pswpout", "swapped out", "memory", "pages", 1),
	SUM("oom_kill", "out-of-memory kills", "memory", "", 1),
	{ NULL },
};
static const struct counter_spec cgroup_cpu_keys[] = {
	SUM("user_usec", "user", "cgroup", "ns", 1000),
	SUM("system_usec", "system", "cgroup", "ns", 1000),
	SUM("throttled_usec", "throttled", "cgroup", "ns", 1000),
	{ NULL },
};
static const struct counter_spec cgroup_memory = GAUGE(NULL, "memory", "cgroup", "bytes", 1);
static const struct counter_spec cgroup_io[] = {
	SUM("rbytes", "read", "cgroup", "bytes", 1),
	SUM("wbytes", "written", "cgroup", "bytes", 1),
	{ NULL },
};
static const struct counter_spec pressure[] = {
	SUM("some", "some", "pressure", "ns", 1000),
	SUM("full", "full", "pressure", "ns", 1000),
};
/* In the order of the numbers of the file; the kernel's sectors have 512 bytes. */
static const struct counter_spec disk[] = {
	[0] = SUM(NULL, "reads", "disk", "", 1),
	[2] = SUM(NULL, "read", "disk", "bytes", 512),
	[4] = SUM(NULL, "writes", "disk", "", 1),
	[6] = SUM(NULL, "written", "disk", "bytes", 512),
	[8] = GAUGE(NULL, "in flight", "disk", "requests", 1),
	[9] = SUM(NULL, "busy", "disk", "ns", 1e6),
};
static const struct counter_spec network[] = {
	[0] = SUM(NULL, "received", "network", "bytes", 1),
	[1] = SUM(NULL, "packets received", "network", "", 1),
	[3] = SUM(NULL, "dropped on receipt", "network", "", 1),
	[8] = SUM(NULL, "sent", "network", "bytes", 1),
	[9] = SUM(NULL, "packets sent", "network", "", 1),
	[11] = SUM(NULL, "dropped on sending", "network", "", 1),
};
static const struct counter_spec frequency = GAUGE(NULL, NULL, "frequency", "Hz", 1000);
static const struct counter_spec energy = SUM(NULL, NULL, "energy", "J", 1e-6);
static const struct counter_spec temperature = GAUGE(NULL, NULL, "temperature", "°C", 1e-3);

struct machine_counter {
	struct row row;
	const struct counter_spec *spec;
	char *device; /* NULL: none */
	char *group, *name;
	double value;
	/* time of the latest reading that was equal to `value`, and not written; 0: none */
	uint64_t held_ns;
};

struct counter_source {
	struct message_counter_file file;
	int fd;
	bool failed;
	unsigned int idle;    /* readings to skip, because the device has done nothing */
	double wrapped, last; /* energy: sum of `wrap` over all wraparounds; last number read */
	GPtrArray *counters;  /* struct machine_counter, in the order of the first reading */
	guint next;           /* the counter that probably comes next */
};

struct machine_value {
	uint64_t time_ns;
	struct machine_counter *counter; /* lives as long as its source */
	double value;
};

/* A reading of a file. */
struct counter_reading {
	struct machine_counters *machine;
	struct counter_source *source;
	uint64_t time_ns;
};

/* ---- Counters -------------------------------------------------------------------------------- */

static void write_counter(struct row *row, struct output *output)
{
	const struct machine_counter *counter = (struct machine_counter *)row;

	output_add(output, PROF_TABLE_COUNTER,
		   (const struct prof_value[]){
			   [PROF_COUNTER_ID] = PROF_NUMBER(row->id),
			   [PROF_COUNTER_PROCESS] = PROF_NUMBER(0),
			   [PROF_COUNTER_GROUP] = PROF_NUMBER(output_text(output, counter->group)),
			   [PROF_COUNTER_NAME] = PROF_NUMBER(output_text(output, counter->name)),
			   [PROF_COUNTER_UNIT] =
				   PROF_NUMBER(output_text(output, counter->spec->unit)),
			   [PROF_COUNTER_KIND] = PROF_NUMBER(counter->spec->kind),
		   });
}

static void free_counter(struct row *row)
{
	struct machine_counter *counter = (struct machine_counter *)row;

	g_free(counter->device);
	g_free(counter->group);
	g_free(counter->name);
	g_free(counter);
}

static bool is_counter(const struct machine_counter *counter, const struct counter_spec *spec,
		       const char *device, size_t length)
{
	return counter->spec == spec &&
	       (counter->device ? strlen(counter->device) == length &&
					  memcmp(counter->device, device, length) == 0
				: length == 0);
}

static struct machine_counter *find_counter(struct counter_reading *reading,
					    const struct counter_spec *spec, const char *device,
					    size_t length)
{
	struct counter_source *source = reading->source;
	guint n = source->counters->len;

	for (guint i = 0; i < n; i++) {
		guint at = (source->next + i) % n;

		if (is_counter(source->counters->pdata[at], spec, device, length)) {
			source->next = at + 1;
			return source->counters->pdata[at];
		}
	}
	return NULL;
}

static struct machine_counter *new_counter(struct counter_reading *reading,
					   const struct counter_spec *spec, const char *device,
					   size_t length)
{
	struct machine_counters *machine = reading->machine;
	struct machine_counter *counter = g_new0(struct machine_counter, 1);
	bool is_cgroup = strcmp(spec->group, "cgroup") == 0;

	row_init(&counter->row, ++*machine->last_counter, write_counter, free_counter);
	counter->spec = spec;
	counter->device = length ? g_strndup(device, length) : NULL;
	counter->group = is_cgroup ? g_strdup_printf("cgroup %s", reading->source->file.name)
				   : g_strdup(spec->group);
	counter->name = counter->device && spec->what
				? g_strdup_printf("%s %s", counter->device, spec->what)
				: g_strdup(spec->what ? spec->what : counter->device);
	g_ptr_array_add(reading->source->counters, counter);
	machine->n_counters++;
	return counter;
}

static void set(struct counter_reading *reading, const struct counter_spec *spec,
		const char *device, size_t length, double number)
{
	struct machine_counters *machine = reading->machine;
	struct machine_counter *counter = find_counter(reading, spec, device, length);
	struct machine_value value = { .time_ns = reading->time_ns, .value = number * spec->scale };

	if (counter && counter->value == value.value) {
		counter->held_ns = reading->time_ns;
		return;
	}
	if (!counter && ((number == 0 && length) || machine->n_counters >= MAX_COUNTERS))
		return;
	if (machine->values->len >= MAX_VALUES)
		return;
	if (!counter)
		counter = new_counter(reading, spec, device, length);
	if (counter->held_ns) {
		struct machine_value held = { counter->held_ns, counter, counter->value };

		g_array_append_val(machine->values, held);
	}
	counter->held_ns = 0;
	counter->value = value.value;
	value.counter = counter;
	g_array_append_val(machine->values, value);
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Reads a decimal number after blanks, and moves *text past it. Returns false if none follows. */
static bool next_number(const char **text, double *ret_number)
{
	const char *at = *text + strspn(*text, " \t");
	bool minus = *at == '-';
	double number = 0;

	at += minus;
	if (!isdigit((unsigned char)*at))
		return false;
	for (; isdigit((unsigned char)*at); at++)
		number = number * 10 + (*at - '0');
	*ret_number = minus ? -number : number;
	*text = at;
	return true;
}

/* Gets the number after `key` at the start of a line: "key 1", "key: 1 kB". Returns false, and
 * changes nothing, if the line has no such key or number. */
static bool has_key(const char *line, const char *key, double *ret_number)
{
	size_t length = strlen(key);

	if (strncmp(line, key, length) != 0 || !strchr(" :\t", line[length]) || !line[length])
		return false;
	line += length + (line[length] == ':');
	return next_number(&line, ret_number);
}

static const char *next_line(const char *line)
{
	line = strchr(line, '\n');
	return line && line[1] ? line + 1 : NULL;
}

static void parse_keys(struct counter_reading *reading, const struct counter_spec *specs,
		       const char *text)
{
	double number;

	for (const char *line = text; line; line = next_line(line))
		for (const struct counter_spec *spec = specs; spec->key; spec++)
			if (has_key(line, spec->key, &number))
				set(reading, spec, NULL, 0, number);
}

/* cpu user nice system idle iowait irq softirq steal …, then such a line for each CPU */
static void parse_stat(struct counter_reading *reading, const char *text)
{
	double numbers[ARRAY_SIZE(modes)];

	for (const char *line = text; line && strncmp(line, "cpu", 3) == 0;
	     line = next_line(line)) {
		size_t length = strcspn(line, " ");
		const char *at = line + length;
		size_t n = 0;

		while (n < ARRAY_SIZE(modes) && next_number(&at, &numbers[n]))
			n++;
		if (n < ARRAY_SIZE(modes))
			continue;
		if (length == 3)
			for (size_t i = 0; i < n; i++)
				set(reading, &modes[i], NULL, 0, numbers[i]);
		else
			set(reading, &busy, line, length,
			    numbers[0] + numbers[1] + numbers[2] + numbers[5] + numbers[6]);
	}
	parse_keys(reading, stat_keys, text);
}

static void parse_memory(struct counter_reading *reading, const char *text)
{
	double total = 0, left = 0;

	parse_keys(reading, memory_keys, text);
	for (const char *line = text; line; line = next_line(line))
		if (!has_key(line, "SwapTotal", &total))
			has_key(line, "SwapFree", &left);
	if (total > 0)
		set(reading, &swap_used, NULL, 0, total - left);
}

/* some avg10=0.00 avg60=0.00 avg300=0.00 total=0 */
static void parse_pressure(struct counter_reading *reading, const char *text)
{
	const char *name = reading->source->file.name;
	double number;

	for (const char *line = text; line; line = next_line(line)) {
		const struct counter_spec *spec = &pressure[strncmp(line, "full ", 5) == 0];
		const char *total = strstr(line, "total=");

		/* Skip "full" of the whole machine's CPU: it is undefined, and the kernel reports
		 * 0. */
		if (!total || (spec == &pressure[1] && strcmp(name, "cpu") == 0))
			continue;
		total += strlen("total=");
		if (next_number(&total, &number))
			set(reading, spec, name, strlen(name), number);
	}
}

/* Sets one counter from each number of a row that has a name in `specs`. */
static void parse_row(struct counter_reading *reading, const struct counter_spec *specs, size_t n,
		      const char *device, size_t length, const char *numbers)
{
	double number;

	for (size_t i = 0; i < n && next_number(&numbers, &number); i++)
		if (specs[i].what)
			set(reading, &specs[i], device, length, number);
}

/* "  eth0: 1 2 3", after two lines of titles */
static void parse_network(struct counter_reading *reading, const char *text)
{
	for (const char *line = text; line; line = next_line(line)) {
		const char *name = line + strspn(line, " ");
		size_t length = strcspn(name, ":\n");

		if (name[length] == ':')
			parse_row(reading, network, ARRAY_SIZE(network), name, length,
				  name + length + 1);
	}
}

/* "8:0 rbytes=1 wbytes=2 …", one line for each device; each counter sums all devices */
static void parse_cgroup_io(struct counter_reading *reading, const char *text)
{
	for (const struct counter_spec *spec = cgroup_io; spec->key; spec++) {
		double sum = 0, number;

		for (const char *at = text; (at = strstr(at, spec->key));) {
			at += strlen(spec->key);
			if (*at++ != '=')
				break;
			if (next_number(&at, &number))
				sum += number;
		}
		set(reading, spec, NULL, 0, sum);
	}
}

static void parse_energy(struct counter_reading *reading, const char *text)
{
	struct counter_source *source = reading->source;
	double number;

	if (!next_number(&text, &number))
		return;
	if (number < source->last)
		source->wrapped += (double)source->file.wrap;
	source->last = number;
	set(reading, &energy, source->file.name, strlen(source->file.name),
	    number + source->wrapped);
}

static void parse_number(struct counter_reading *reading, const struct counter_spec *spec,
			 const char *name, const char *text)
{
	double number;

	if (next_number(&text, &number))
		set(reading, spec, name, strlen(name), number);
}

void machine_counters_parse(struct machine_counters *machine, struct counter_source *source,
			    const char *text, uint64_t time_ns)
{
	struct counter_reading reading = { machine, source, time_ns };
	const char *name = source->file.name;

	source->next = 0;
	switch ((enum counter_file)source->file.kind) {
	case COUNTER_FILE_STAT:
		parse_stat(&reading, text);
		break;
	case COUNTER_FILE_FREQUENCY:
		parse_number(&reading, &frequency, name, text);
		break;
	case COUNTER_FILE_PRESSURE:
		parse_pressure(&reading, text);
		break;
	case COUNTER_FILE_MEMINFO:
		parse_memory(&reading, text);
		break;
	case COUNTER_FILE_VMSTAT:
		parse_keys(&reading, vm_keys, text);
		break;
	case COUNTER_FILE_DISK:
		parse_row(&reading, disk, ARRAY_SIZE(disk), name, strlen(name), text);
		break;
	case COUNTER_FILE_NETWORK:
		parse_network(&reading, text);
		break;
	case COUNTER_FILE_CGROUP_CPU:
		parse_keys(&reading, cgroup_cpu_keys, text);
		break;
	case COUNTER_FILE_CGROUP_MEMORY:
		parse_number(&reading, &cgroup_memory, "", text);
		break;
	case COUNTER_FILE_CGROUP_IO:
		parse_cgroup_io(&reading, text);
		break;
	case COUNTER_FILE_ENERGY:
		parse_energy(&reading, text);
		break;
	case COUNTER_FILE_TEMPERATURE:
		parse_number(&reading, &temperature, name, text);
		break;
	case COUNTER_FILE_KINDS:
		break;
	}
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void free_source(gpointer data)
{
	struct counter_source *source = data;

	for (guint i = 0; i < source->counters->len; i++)
		row_unref(&((struct machine_counter *)source->counters->pdata[i])->row);
	g_ptr_array_unref(source->counters);
	close(source->fd);
	g_free(source);
}

void machine_counters_init(struct machine_counters *machine, struct output *output,
			   uint32_t *last_counter)
{
	*machine = (struct machine_counters){
		.output = output,
		.last_counter = last_counter,
		.files = g_ptr_array_new_with_free_func(free_source),
		.values = g_array_new(FALSE, FALSE, sizeof(struct machine_value)),
		.interval_ns = INTERVAL_NS,
	};
}

void machine_counters_done(struct machine_counters *machine)
{
	if (!machine->output)
		return;
	g_array_unref(machine->values);
	g_ptr_array_unref(machine->files);
	g_free(machine->text);
	*machine = (struct machine_counters){ 0 };
}

bool machine_counters_add(struct machine_counters *machine, const struct message_counter_file *file,
			  int fd)
{
	struct counter_source *source = g_new0(struct counter_source, 1);

	source->file = *file;
	source->file.name[sizeof(file->name) - 1] = '\0';
	source->fd = fd;
	source->counters = g_ptr_array_new();
	g_ptr_array_add(machine->files, source);
	if (!machine->text)
		machine->text = g_malloc(TEXT_BYTES);
	return file->kind < COUNTER_FILE_KINDS && machine->files->len <= MAX_COUNTER_FILES;
}

uint64_t machine_counters_due_ns(const struct machine_counters *machine)
{
	return machine->output && machine->files->len ? machine->read_ns + machine->interval_ns
						      : UINT64_MAX;
}

static void read_source(struct machine_counters *machine, struct counter_source *source)
{
	uint64_t time_ns = clock_now();
	size_t length = 0;
	ssize_t n;

	/* Only the list of networks may come in several parts. */
	do {
		n = pread(source->fd, machine->text + length, TEXT_BYTES - 1 - length,
			  (off_t)length);
		length += n > 0 ? (size_t)n : 0;
	} while (n > 0 && source->file.kind == COUNTER_FILE_NETWORK && length < TEXT_BYTES - 1);
	/* Reading fails once the device, the cgroup, or the process whose network namespace the
	 * file shows is gone. */
	source->failed = n < 0;
	machine->text[length] = '\0';
	if (!source->failed)
		machine_counters_parse(machine, source, machine->text, time_ns);
}

COMPARE_BY(compare_values, struct machine_value, ORDER(a->time_ns, b->time_ns))

void machine_counters_read(struct machine_counters *machine, uint64_t now_ns)
{
	POINTER_EACH(struct counter_source, source, machine->files) {
		if (source->failed || (source->idle > 0 && source->idle-- > 0))
			continue;
		read_source(machine, source);
		if (source->counters->len == 0)
			source->idle = IDLE_READINGS - 1;
	}
	g_array_sort(machine->values, compare_values);
	machine->read_ns = now_ns;
	machine->interval_ns = MAX_OF((clock_now() - now_ns) * SHARE, INTERVAL_NS);
}

uint64_t machine_counters_next_ns(const struct machine_counters *machine)
{
	return machine->output && machine->values->len
		       ? g_array_index(machine->values, struct machine_value, 0).time_ns
		       : UINT64_MAX;
}

void machine_counters_write(struct machine_counters *machine, uint64_t reached_ns)
{
	guint n;

	if (!machine->output)
		return;
	for (n = 0; n < machine->values->len; n++) {
		const struct machine_value *value =
			&g_array_index(machine->values, struct machine_value, n);
		uint64_t bits;

		if (value->time_ns > reached_ns)
			break;
		memcpy(&bits, &value->value, sizeof(bits));
		output_need(machine->output, &value->counter->row);
		output_add(machine->output, PROF_TABLE_COUNTER_VALUE,
			   (const struct prof_value[]){
				   [PROF_COUNTER_VALUE_TIME] = PROF_NUMBER(value->time_ns),
				   [PROF_COUNTER_VALUE_COUNTER] =
					   PROF_NUMBER(value->counter->row.id),
				   [PROF_COUNTER_VALUE_VALUE] = PROF_NUMBER(bits),
			   });
	}
	machine->n_rows += n;
	if (n > 0)
		g_array_remove_range(machine->values, 0, n);
}
