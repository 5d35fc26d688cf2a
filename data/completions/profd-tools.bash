# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Completion for profctl and profcapture. The program itself lists what can be completed: `PROGRAM
# --complete` prints its verbs; `PROGRAM VERB --complete` prints the verb's options ("--opt" without
# a value, "--opt=" with a value, "--opt=CHOICE" for each value of a fixed set) and, without a dash,
# the operands, if the program knows them.

# Prints the index in COMP_WORDS at which the recorded command starts, or nothing.
_profd_tools_command() {
	local options=$1 i
	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--) echo $((i + 1)) && return ;;
		-*)
			# The option's value is the next word, or "=" and the word after it.
			if [[ ${COMP_WORDS[i + 1]-} == = ]]; then
				((i += 2))
				# a value such as "sample:BYTES", which bash splits into three words
				[[ ${COMP_WORDS[i + 1]-} != : ]] || ((i += 2))
			elif [[ $'\n'$options$'\n' == *$'\n'"${COMP_WORDS[i]}="$'\n'* ]]; then
				((i++))
			fi
			;;
		*) echo "$i" && return ;;
		esac
	done
}

# Completes the value of -e or --event, which is a list, or an operand of the verb `list`. bash
# makes each colon in them a separate word. Fails if something else is to be completed.
_profd_tools_event() {
	local program=$1 i text=${COMP_WORDS[COMP_CWORD]} last
	for ((i = COMP_CWORD - 1; i > 1; i--)); do
		case ${COMP_WORDS[i]} in
		-e | --event) break ;;
		=) [[ ${COMP_WORDS[i - 1]} == --event ]] || return 1 ;;
		*)
			if [[ ${COMP_WORDS[i]} == : || ${COMP_WORDS[i + 1]} == : ]]; then
				text=${COMP_WORDS[i]}$text
			elif [[ ${COMP_WORDS[1]} == list ]]; then
				break
			else
				return 1
			fi
			;;
		esac
	done
	((i > 1)) || [[ ${COMP_WORDS[1]} == list ]] || return 1
	last=${text##*,}
	mapfile -t COMPREPLY < <("$program" list "$last*" 2>/dev/null | sed 's/  .*//')
	if [[ $last != *:* ]]; then
		mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$last")
	fi
	# bash replaces only what follows the last colon.
	text=${text%"$last"}
	COMPREPLY=("${COMPREPLY[@]/#/$text}")
	text=$text$last
	[[ $text != *:* ]] || COMPREPLY=("${COMPREPLY[@]#"${text%:*}:"}")
}

_profd_tools() {
	local program=$1 cur=$2 prev=$3 verb=${COMP_WORDS[1]-} options choices command option=
	compopt +o nospace 2>/dev/null
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --complete 2>/dev/null)" -- "$cur")
		return
	fi
	if [[ $verb == help || $verb == schema ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --complete 2>/dev/null | grep -v '^-')" -- "$cur")
		return
	fi
	options=$("$program" "$verb" --complete 2>/dev/null)

	if [[ $verb == list && $cur != -* ]]; then
		_profd_tools_event "$program" && return
	elif [[ $verb == record || $verb == stat ]]; then
		_profd_tools_event "$program" && return
		command=$(_profd_tools_command "$options")
		if [[ $command ]]; then
			if declare -F _command_offset >/dev/null; then
				_command_offset "$command"
			elif ((command == COMP_CWORD)); then
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			else
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			fi
			return
		fi
	fi

	# bash makes a word of the "=" in --opt=value.
	if [[ $cur == = ]]; then
		option=$prev cur=
	elif [[ $prev == = ]]; then
		option=${COMP_WORDS[COMP_CWORD - 2]}
	elif [[ $'\n'$options$'\n' == *$'\n'"$prev="$'\n'* ]]; then
		option=$prev
	fi
	if [[ $option ]]; then
		choices=$(sed -n "s/^$option=\(..*\)/\1/p" <<<"$options")
		if [[ $choices ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$cur")
		else
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		fi
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(grep -v '=.' <<<"$options" | sed 's/=$//' | grep '^--')" -- "$cur")
	elif [[ $verb == record || $verb == stat ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	elif [[ $verb == stop || $verb == pause || $verb == resume ]]; then
		((COMP_CWORD > 2)) || mapfile -t COMPREPLY < <(compgen -W "$(grep -v '^-' <<<"$options")" -- "$cur")
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}

complete -F _profd_tools profctl profcapture
