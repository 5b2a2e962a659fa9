"""How questions point back, in English and in Chinese: pronouns, gaps, and the words that name a property of
something and not the thing."""

from __future__ import annotations

import re

from memory.words import query_terms

WORD = re.compile(r"[A-Za-zÀ-ɏΑ-ωА-я0-9][\w'’/-]*")
CHINESE = re.compile(r"[\u3400-\u9fff]+")
_IGNORE = re.IGNORECASE

PRONOUN = re.compile(
    r"\b(it|its|itself|they|them|their|theirs|he|him|his|she|her|hers|these|those)\b"
    r"|\bit[’']?s\b(?=\s+\w+\s+\w)"
    r"|\bthis\b(?! (chat|conversation|week|month|year|morning|afternoon|evening|time|file|document|text|image)\b)"
    r"|\b(about|of|for|with|like|than|is|was|did|do|does|to|after|before|why|by|from|on) that\b"
    r"(?! (is|are|was|can|have|you|i|we)\b)"
    r"|^that\b|\bthat\s*[?.!]*$"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )\bthere\s*[?.!]*$"
    r"|\b(other|which|what|the|any|same) ones?\b",
    _IGNORE,
)
IDLE_IT = re.compile(
    r"\bwhat (time|day|date) is it\b"
    r"|\bis it (true|possible|necessary|ok|okay|worth|raining|snowing|cold|hot|late|too late) ?"
    r"(that|to|for|in|outside|now|\?|$)",
    _IGNORE,
)
"""An "it" that stands for nothing."""
CLAUSE = re.compile(r"[.,;:!?，。；：！？]+\s*|\b(?:and|but|or|so|because|although|while)\b", _IGNORE)
WHAT_ABOUT = re.compile(r"^\W*((and|but|so|then|ok|okay)\W+)*(what|how) about\b", _IGNORE)
BARE_SUPERLATIVE = re.compile(
    r"\bthe (\w{3,}est|best|worst|first|last|(most|least) \w+)( (and|ever|in|on|to|for|of all|by)\b|\s*[?.!]*$)",
    _IGNORE,
)
"""A superlative without a noun: "which is the largest?"."""
ASKS = re.compile(
    r"[?？]|^\W*(what|who|when|where|why|how|which|tell|describe|explain|show|give|list|are|is|do|does|did|can)\b",
    _IGNORE,
)

CHINESE_PRONOUN = re.compile(r"它们?|他们?|她们?|这个(?!月|星期|礼拜|周)|那个|这些|那些|其中|那里|那儿|这样|那样")
CHINESE_GAP = re.compile(
    r"^(那|那么|还有|另外|然后)[^，。]{0,6}(呢)?[?？]?$|^[^，。]{1,8}呢[?？]?$"
    r"|^(为什么|怎么会|怎么样|多少钱|什么时候|在哪里?|是谁)(呢|啊)?[?？]?$"
)
CHINESE_CUT = re.compile(
    r"什么|怎么样?|为什么|多少|哪[里儿些个]?|谁|几|吗|呢|吧|啊|的|了|是|在|有|和|与|或|请|给|讲|介绍一下|介绍|一下|告诉|我们?|你们?|您"
    r"|它们?|他们?|她们?|这[个些样]?|那[个些样么里儿]?|其中|怎样|如何|会|能|可以|要|应该|主要|原因|特点|区别|作用|影响|历史|方法|种类|价格|好处|坏处|优点|缺点"
)

RELATIONAL = frozenset(
    query_terms(
        """main major important key common typical popular famous known best better good bad worst worse large largest
        big biggest small great greatest different difference differences similar similarity similarities
        other others many much type types kind kinds form forms sort sorts part parts element elements
        example examples cause causes caused reason reasons effect effects side result results finding
        findings outcome outcomes impact impacts influence consequence consequences implication implications
        symptom symptoms sign signs treatment treatments treat cure cured cost costs price prices use uses
        used using advantage advantages disadvantage disadvantages benefit benefits pros cons risk risks
        danger dangers dangerous safe safety feature features characteristic characteristics property
        properties member members character characters theme themes author authors artist artists founder
        founding origin origins history creation invention invented invent discovered discover role roles
        relationship related relate compare compared comparison mean meaning definition term name names work
        works working happen happened start started begin began end ended win won award awards live lives
        last long time times year years day days old people person way ways method methods problem problems
        solution solutions challenge challenges event events level levels number amount size weight weigh
        height age color colour describe explain tell discuss list give show help know think say said make
        makes made get take took go come came need want like look find found see possible likely available
        required recommended exist existed become became change changed develop developed development occur
        evolve created create built build open opened close closed purpose purposes function functions goal
        goals idea ideas step steps process affect affects influenced include included contain special
        interesting interest fact facts info information detail details today currently now modern original
        originally short long-term first second third next previous later recent new early ever really
        actually usually generally typically often exactly survive survived released release published
        publish received receive review reviews played play study studies test tests model models options
        option source sources competitor competitors alternative alternatives product products service
        services place places""",
        limit=600,
    )
)
"""Words that ask about something without naming it."""
